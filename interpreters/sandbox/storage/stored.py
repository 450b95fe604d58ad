"""An object as it is stored.

Owns its bytes, checksums and metadata, and their JSON form. Must not know buckets' contents or HTTP.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any
from urllib.parse import quote

import google_crc32c

from interpreters.sandbox.storage.refusals import invalid

WRITABLE = frozenset(
    {
        "cacheControl", "contentDisposition", "contentEncoding", "contentLanguage", "contentType", "customTime",
        "eventBasedHold", "metadata", "storageClass", "temporaryHold",
    }
)  # fmt: skip
"""The metadata a client may set."""
_CHECKSUMS = {"crc32c": "CRC32C", "md5Hash": "MD5"}


@dataclass(frozen=True)
class Content:
    """Bytes, with their checksums."""

    data: bytes

    @cached_property
    def checksums(self) -> Mapping[str, str]:
        """Return the checksums by the names they have in metadata."""
        md5 = hashlib.md5(self.data, usedforsecurity=False).digest()
        crc32c = int(google_crc32c.value(self.data)).to_bytes(4, "big")
        return {"crc32c": base64.b64encode(crc32c).decode(), "md5Hash": base64.b64encode(md5).decode()}

    def check(self, declared: Mapping[str, Any]) -> None:
        """Refuse if a declared checksum is not that of the bytes."""
        for name, label in _CHECKSUMS.items():
            given, own = declared.get(name), self.checksums[name]
            if given and given != own:
                message = f'Provided {label} hash "{given}" doesn\'t match calculated {label} hash "{own}".'
                raise invalid(message)


@dataclass(frozen=True)
class StoredObject:
    """One generation of an object."""

    bucket: str
    name: str
    content: Content
    generation: int
    created: datetime
    updated: datetime
    metageneration: int = 1
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What the client has set of `WRITABLE`."""

    @property
    def etag(self) -> str:
        """Return what changes with every change."""
        return base64.b64encode(f"{self.generation}/{self.metageneration}".encode()).decode()

    @property
    def content_type(self) -> str:
        """Return the content type."""
        return str(self.metadata.get("contentType", "application/octet-stream"))

    def resource(self, origin: str) -> dict[str, Any]:
        """Return the metadata in JSON form, with links to that origin."""
        path = f"storage/v1/b/{self.bucket}/o/{quote(self.name, safe='')}"
        created = rfc3339(self.created)
        return {
            "storageClass": "STANDARD",
            "contentType": self.content_type,
            **self.metadata,
            **self.content.checksums,
            "kind": "storage#object",
            "id": f"{self.bucket}/{self.name}/{self.generation}",
            "selfLink": f"{origin}/{path}",
            "mediaLink": f"{origin}/download/{path}?generation={self.generation}&alt=media",
            "name": self.name,
            "bucket": self.bucket,
            "generation": str(self.generation),
            "metageneration": str(self.metageneration),
            "size": str(len(self.content.data)),
            "etag": self.etag,
            "timeCreated": created,
            "timeFinalized": created,
            "timeStorageClassUpdated": created,
            "updated": rfc3339(self.updated),
        }


def rfc3339(moment: datetime) -> str:
    """Return a moment as Google writes it, with milliseconds."""
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"


def writable(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of the metadata a client may set, without what it sets to nothing."""
    return {name: value for name, value in metadata.items() if name in WRITABLE and value is not None}
