"""The paths of the JSON API.

Owns which request is which method, and the kinds by which requests are counted. Must not know what methods do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from interpreters.sandbox.http_server import Reply, Request
from interpreters.sandbox.storage.methods import Methods

_B = r"/storage/v1/b"
_O = rf"{_B}/([^/]+)/o"
_UPLOAD = rf"/(?:resumable/)?upload{_O}"
_PUBLIC = r"/((?!storage/|upload/|download/|batch/)[^/]+)/(.+)"


@dataclass(frozen=True, slots=True)
class Route:
    """One line of the table."""

    kind: str
    """The name under which such requests are counted."""
    method: str
    pattern: re.Pattern[str]
    act: Callable[..., Reply]
    """A method of `Methods`; it takes the groups of the pattern after the request."""
    upload_type: str | None = None
    """The uploadType the query must have."""


def _route(kind: str, method: str, path: str, act: Callable[..., Any], upload_type: str | None = None) -> Route:
    return Route(kind, method, re.compile(path), act, upload_type)


ROUTES = (
    _route("buckets.list", "GET", _B, Methods.list_buckets),
    _route("buckets.insert", "POST", _B, Methods.insert_bucket),
    _route("buckets.get", "GET", rf"{_B}/([^/]+)", Methods.get_bucket),
    _route("buckets.delete", "DELETE", rf"{_B}/([^/]+)", Methods.delete_bucket),
    _route("objects.list", "GET", _O, Methods.list_objects),
    _route("objects.get", "GET", rf"{_O}/([^/]+)", Methods.get_object),
    _route("objects.download", "GET", rf"/download{_O}/([^/]+)", Methods.download),
    _route("objects.delete", "DELETE", rf"{_O}/([^/]+)", Methods.delete_object),
    _route("objects.patch", "PATCH", rf"{_O}/([^/]+)", Methods.patch_object),
    _route("objects.patch", "PUT", rf"{_O}/([^/]+)", Methods.patch_object),
    _route("objects.copy", "POST", rf"{_O}/([^/]+)/copyTo/b/([^/]+)/o/([^/]+)", Methods.copy_object),
    _route("objects.rewrite", "POST", rf"{_O}/([^/]+)/rewriteTo/b/([^/]+)/o/([^/]+)", Methods.rewrite_object),
    _route("objects.insert", "POST", _UPLOAD, Methods.insert_media, "media"),
    _route("objects.insert", "POST", _UPLOAD, Methods.insert_multipart, "multipart"),
    _route("uploads.begin", "POST", _UPLOAD, Methods.begin_upload, "resumable"),
    _route("uploads.send", "PUT", _UPLOAD, Methods.send_upload),
    _route("uploads.cancel", "DELETE", _UPLOAD, Methods.cancel_upload),
    _route("public.get", "GET", _PUBLIC, Methods.download),
    _route("public.get", "HEAD", _PUBLIC, Methods.download),
)


def find_route(request: Request) -> tuple[Route, list[str]] | None:
    """Return the route of a request, with the names in its path."""
    for route in ROUTES:
        found = route.pattern.fullmatch(request.path) if route.method == request.method else None
        if found and route.upload_type in {None, request.query.get("uploadType")}:
            return route, [unquote(one) for one in found.groups()]
    return None
