"""What a key of a profile takes from the user, apart from what it says about a box.

Every key of the schema is marked with one of these; a test checks that. What a repository's
own profile takes needs the user's consent (`profile/takings.py`).
"""

from __future__ import annotations

import enum
from typing import Annotated, TypeVar

T = TypeVar("T")


class Takes(enum.Enum):
    """What is taken; the values are the words in the list that the user agrees to."""

    NOTHING = "nothing"
    SECRET = "secret"  # noqa: S105
    FILE = "file"
    REPOSITORY = "repository"
    PUBLIC_KEY = "public key"
    DEPENDENCY = "dependency"
    DATA = "data"
    BUCKET = "bucket"
    MONEY = "money"
    ACCOUNT = "account"


Free = Annotated[T, Takes.NOTHING]
Secrets = Annotated[T, Takes.SECRET]
File = Annotated[T, Takes.FILE]
Repository = Annotated[T, Takes.REPOSITORY]
PublicKeys = Annotated[T, Takes.PUBLIC_KEY]
Dependencies = Annotated[T, Takes.DEPENDENCY]
Data = Annotated[T, Takes.DATA]
Buckets = Annotated[T, Takes.BUCKET]
Money = Annotated[T, Takes.MONEY]
Account = Annotated[T, Takes.ACCOUNT]
