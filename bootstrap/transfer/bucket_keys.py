"""Find this machine's keys for an S3 bucket, in the places where the provider's tools look.

obstore itself reads only environment variables. Most users have keys in `~/.aws`, or get them
for an hour by a login of the `aws` program, which is then asked for them.
"""

from __future__ import annotations

import configparser
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from bootstrap.box.runs.s3_client import region_of
from bootstrap.errors import UsageError
from bootstrap.paths import expanded
from bootstrap.text.sanitize import sanitize

_PROGRAM_S = 60
_LONGEST = 300
_OF_A_SERVICE = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
"""If one of these is set, obstore gets keys on its own."""
_KEYS = {
    "aws_access_key_id": "AccessKeyId",
    "aws_secret_access_key": "SecretAccessKey",
    "aws_session_token": "SessionToken",
}
"""Names in files and in obstore, and names that programs print."""


def s3_settings(bucket: str, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return keys, endpoint and region for obstore to reach `bucket`. Raises UsageError."""
    environment = os.environ if environment is None else environment
    name = environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE") or "default"
    section = _section(name, environment)
    settings = _keys(name, section, environment)
    endpoint = (
        environment.get("AWS_ENDPOINT_URL_S3")
        or environment.get("AWS_ENDPOINT_URL")
        or section.get("endpoint_url")
    )
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    region = region or section.get("region") or "us-east-1"
    if endpoint:
        return {**settings, "aws_endpoint": endpoint, "aws_region": region}
    return {**settings, "aws_region": region_of(bucket) or region}


def _keys(name: str, section: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    given = {key: environment.get(key.upper(), "") for key in _KEYS}
    if not given["aws_access_key_id"]:
        given = {key: section.get(key, "") for key in _KEYS}
    if not given["aws_access_key_id"] and not any(map(environment.get, _OF_A_SERVICE)):
        given = _ask_program(name, section)
    return {key: value for key, value in given.items() if value}


def _section(name: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Read the settings of the AWS profile `name` from the user's files."""
    found: dict[str, str] = {}
    for variable, file, title in (
        ("AWS_CONFIG_FILE", "~/.aws/config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", name),
    ):
        path = expanded(environment.get(variable) or file)
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read_string(path.read_text("utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, UnicodeError, configparser.Error) as error:
            raise UsageError(f"can't be read: {type(error).__name__}.", where=str(path)) from None
        if parser.has_section(title):
            found.update(parser.items(title))
    return found


def _ask_program(name: str, section: Mapping[str, str]) -> dict[str, str]:
    """Return the keys that `credential_process`, else `aws`, prints. Raises UsageError."""
    if process := section.get("credential_process"):
        command = shlex.split(process)
    elif aws := shutil.which("aws"):
        command = [aws, "configure", "export-credentials", "--profile", name]
        command += ["--format", "process"]
    else:
        raise _no_key("none is in the environment, nor in ~/.aws")
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=Path.home(),  # no file of a repository can affect it
            timeout=_PROGRAM_S,
            check=False,
        )
        said = json.loads(done.stdout) if done.returncode == 0 else {}
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise _no_key(f"{command[0]} gave none: {type(error).__name__}") from None
    given = {key: str(said.get(word) or "") for key, word in _KEYS.items()}
    if not given["aws_access_key_id"]:
        last = sanitize(done.stderr).strip().rpartition("\n")[2][:_LONGEST]
        raise _no_key(f"{command[0]} gave none{last and ': ' + last}")
    return given


def _no_key(why: str) -> UsageError:
    return UsageError(
        f"there is no key for S3 on this machine: {why}.",
        hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE to one of your "
        "profiles, or log in: aws sso login",
    )
