"""The box's host key: pinned at first contact, refused when it changed.

Each box has its own known_hosts file, which boxstrap and OpenSSH both read. A new pin is saved only
after the login succeeded, together with the box's record (docs/adr/0004). The user's own one counts
too: if it agrees, the key is pinned silently; if it contradicts, the key is refused.
"""

from collections.abc import Iterable
from typing import Literal

from bootstrap.errors import HostKeyError, write_error
from bootstrap.link.endpoint import Endpoint
from bootstrap.link.prompt import Prompt
from bootstrap.link.public_key import PublicKey
from bootstrap.link.record import KnownBox, load_box, pins_of, read_known_hosts, save_with_pin
from bootstrap.link.registry import boxes_at, check_fingerprint, incomplete_record_error

FirstContact = Literal["pin", "ask", "strict"]
_SHOWN = "shown now"


class HostKeyCheck:
    """Checks the host key that a box shows, before anything is sent to it.

    `expected` is the fingerprint that the user gave, `first_contact` what to do with a new key.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        box: KnownBox,
        prompt: Prompt,
        *,
        expected: str | None = None,
        first_contact: FirstContact = "pin",
    ) -> None:
        self._endpoint = endpoint
        self._box = box
        self._first_contact = first_contact
        self._prompt = prompt
        self._expected = check_fingerprint(expected) if expected else None
        self._is_new = False
        self._pinned = read_pins(box)
        if not self._pinned and box.folder.exists():
            raise incomplete_record_error(box, endpoint, "pinned host key")
        self._users_name = endpoint.host_key_alias or endpoint.pin_name
        self._users = read_known_hosts(endpoint.known_hosts_files, self._users_name)
        self._known_before = (self._pinned, "") if self._pinned else self._look_up()
        self._accepted: PublicKey | None = None

    def wanted_kinds(self) -> list[str]:
        """List the key types to ask the box for first: those of its known keys."""
        return sorted({key.kind for key in self._pinned or self._known_before[0]})

    def judge(self, key: PublicKey) -> None:
        """Accept the key, or raise HostKeyError."""
        if key == self._accepted:
            return
        if key in self._users.revoked:
            raise self._refuse(f"your known_hosts marks its host key as revoked: {key}.")
        if self._pinned and key not in self._pinned:
            # A new name is only typed until the login succeeded.
            known = load_box(self._box.folder) or self._box
            raise self._changed(key, self._pinned, known.name)
        if self._expected and key.fingerprint != self._expected:
            raise self._refuse(
                f"its host key is not the one expected.\n"
                f"  expected  {self._expected}\n  shown     {key}",
                "Nothing was sent. Compare with the provider's page, and mind the key's type.",
            )
        if not self._pinned and not self._expected:
            self._first(key)
        self._accepted = key

    def keep(self) -> None:
        """Pin the accepted key and save the box's record, once the login succeeded. Raises
        HostKeyError if another command pinned another key meanwhile, BoxstrapError on a full disk.
        """
        accepted = self._accepted
        if accepted and not self._pin(self._pinned | {accepted}):
            self._pinned, self._accepted = read_pins(self._box), None
            self.judge(accepted)
        if self._is_new:
            self._prompt.say(f"first contact with {self._box.name}: pinned its host key {accepted}")
            self._is_new = False

    def _pin(self, keys: Iterable[PublicKey]) -> bool:
        """Save the keys, a line each for address and HostKeyAlias, and the box's record, unless
        nothing changed; False if another command was first."""
        box = self._box
        names = list(dict.fromkeys([self._endpoint.pin_name, box.host_key_alias]))
        lines = [f"{host} {key.line}\n" for key in sorted(keys, key=str) for host in names]
        text = "".join(lines)
        try:
            if self._pinned and box.known_hosts.read_text("utf-8", "replace") == text:
                return True
            return save_with_pin(box, text, is_new=not self._pinned)
        except OSError as error:
            raise write_error(box.folder, error) from None

    def _look_up(self) -> tuple[frozenset[PublicKey], str]:
        """Return the known keys of a box that has no pin of its own yet, and for which box they are
        pinned; "" if your known_hosts has them."""
        if self._box.own_pin:
            return frozenset(), ""
        if self._users.keys:
            return self._users.keys, ""
        there = boxes_at(self._endpoint)  # a new name for a known address is not a first contact
        if there is None:
            return frozenset(), ""
        if not (pins := read_pins(there)):
            raise incomplete_record_error(there, self._endpoint, "pinned host key")
        return pins, there.name

    def _first(self, key: PublicKey) -> None:
        known, box = self._known_before
        if known:
            if key not in known:
                raise self._changed(key, known, box)
            return
        if self._first_contact == "strict":
            raise self._refuse(
                f"its host key is not known yet: {key}.",
                f"If the provider shows the same: --host-key {key.fingerprint}",
            )
        if self._first_contact == "ask":
            question = (
                f"First contact with {self._endpoint.label}. Its host key is {key}. Trust it?"
            )
            if not self._prompt.confirm(question):
                raise self._refuse(
                    f"its host key was not confirmed: {key}.",
                    f"Without a terminal, confirm it with --host-key {key.fingerprint}",
                )
            return
        self._is_new = True
        there = boxes_at(self._endpoint) if self._box.own_pin else None
        if there and key in read_pins(there):
            self._prompt.say(
                f"{there.name} has this address and this host key, too: unless both are of one "
                f"image, this is {there.name}, and to be called so without --new-box"
            )

    def _changed(self, key: PublicKey, before: Iterable[PublicKey], box: str) -> HostKeyError:
        whose = f"pinned for {box}" if box else "known in your known_hosts"
        forget = f"boxstrap boxes --forget {box}" if box else f"ssh-keygen -R '{self._users_name}'"
        width = max(len(whose), len(_SHOWN))
        lines = "\n".join(f"  {whose:<{width}}  {old}" for old in sorted(before, key=str))
        return self._refuse(
            f"its host key changed.\n{lines}\n  {_SHOWN:<{width}}  {key}",
            "Nothing was sent. Rented addresses are reused: if this is another box than before, "
            "set it up with --new-box, which keeps the old one. If it should be the same box, "
            "someone may be in between: compare with the provider's page. Where that shows the new "
            f"key: {forget}\n"
            f"and log in with --host-key {key.fingerprint}, so that no other one is accepted.",
        )

    def _refuse(self, what: str, hint: str = "") -> HostKeyError:
        return HostKeyError(what, where=self._endpoint.label, hint=hint)


def read_pins(box: KnownBox) -> frozenset[PublicKey]:
    """Return all keys pinned for the box, under any address; none if the file can't be read."""
    return frozenset(key for _, key in pins_of(box))
