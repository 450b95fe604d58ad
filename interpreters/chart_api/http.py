"""Chart-IMG over HTTP (§13).

Owns the exchange: origin, key, deadline, size. Must not judge what comes back.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from http.cookiejar import DefaultCookiePolicy
from threading import Thread

import requests
import urllib3

from core.charts.answers import Answer, NoAnswer
from core.secrets import Secret
from effects import CallChartApi
from interpreters.chart_api.deadline import Deadline, InterruptibleAdapter, bounded_by
from interpreters.ports import Clock

PATH = "/v2/tradingview/advanced-chart"
_CHUNK_BYTES = 64 * 1024
MAX_ERROR_BYTES = 64 * 1024
_OK = 200
GRACE_SECONDS = 0.25

# Of an answer it cannot parse, urllib3 logs the raw header lines, in which a key may have been echoed.
logging.getLogger("urllib3.connection").setLevel(logging.CRITICAL)


class _Session(requests.Session):
    """A session that looks at no redirect: requests would read its whole body, and parse its Location."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Return None: nothing redirects."""


class ChartImg:
    """The Chart-IMG API of one origin, with the keys of its accounts."""

    def __init__(
        self, base_url: str, keys: Mapping[str, Secret], max_image_bytes: int, parallel: int, clock: Clock
    ) -> None:
        """Reuse connections for as many calls as run side by side; keep no cookies, use no proxy or netrc."""
        self._url = base_url + PATH
        self._keys = keys
        self._max_image_bytes = max_image_bytes
        self._clock = clock
        self._session = _Session()
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self._session.trust_env = False
        adapter = InterruptibleAdapter(pool_connections=1, pool_maxsize=parallel)
        self._session.mount("https://", adapter)
        self._session.mount("http://", adapter)

    def ask(self, effect: CallChartApi) -> Answer | NoAnswer:
        """Return the answer to one call, which ends at its deadline in any case."""
        left = (effect.ends_by - self._clock.now()).total_seconds()
        seconds = min(effect.timeout_seconds, left)
        if seconds <= 0:
            return NoAnswer(kind="timeout", message="no time was left to call")
        answer: Future[Answer | NoAnswer] = Future()
        limit = Deadline()
        Thread(target=self._answer, args=(answer, effect, seconds, limit), daemon=True).start()
        try:
            return answer.result(timeout=seconds)
        except FutureTimeoutError:
            limit.expire()
        try:
            return answer.result(timeout=GRACE_SECONDS)
        except FutureTimeoutError:  # the name is still being looked up, which nothing can interrupt
            return _timed_out(seconds)

    def _answer(
        self, answer: Future[Answer | NoAnswer], effect: CallChartApi, seconds: float, limit: Deadline
    ) -> None:
        try:
            answer.set_result(self._bounded(effect, seconds, limit))
        except BaseException as error:  # noqa: BLE001 - raised again where the answer is waited for
            answer.set_exception(error)

    def _bounded(self, effect: CallChartApi, seconds: float, limit: Deadline) -> Answer | NoAnswer:
        with bounded_by(limit):
            try:
                return self._exchange(effect, seconds, limit)
            except (requests.Timeout, urllib3.exceptions.TimeoutError):
                return _timed_out(seconds)
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
                said = f"{type(error).__name__}: {error}"
                return _timed_out(seconds) if limit.has_passed else NoAnswer(kind="network", message=said)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _exchange(self, effect: CallChartApi, seconds: float, limit: Deadline) -> Answer | NoAnswer:
        headers = {
            "x-api-key": self._keys[effect.account_id].reveal(),
            "Accept": "image/png, application/json",
            "Accept-Encoding": "identity",
        }
        with self._session.post(
            self._url, json=effect.body, headers=headers, timeout=seconds, stream=True, allow_redirects=False
        ) as response:
            most = self._max_image_bytes if response.status_code == _OK else MAX_ERROR_BYTES
            body, is_cut = _read(response, most)
        if limit.has_passed:
            return _timed_out(seconds)
        return Answer(
            status=response.status_code,
            body=body,
            content_encoding=response.headers.get("Content-Encoding"),
            is_cut=is_cut,
        )


def _read(response: requests.Response, most: int) -> tuple[bytes, bool]:
    """Return the body as it came, uncompressed or not, and whether there was more of it than allowed.

    Where its length is announced it is read in one piece, so that it is never held twice.
    """
    if response.raw.length_remaining is not None and response.raw.length_remaining <= most:
        whole: bytes = response.raw.read(decode_content=False)
        return whole, False
    parts: list[bytes] = []
    size = 0
    for part in response.raw.stream(_CHUNK_BYTES, decode_content=False):
        parts.append(part[: most - size])
        size += len(part)
        if size > most:
            return b"".join(parts), True
    return b"".join(parts), False


def _timed_out(seconds: float) -> NoAnswer:
    return NoAnswer(kind="timeout", message=f"no complete answer within {seconds:.1f} s")
