"""Eventarc on this machine: document changes as CloudEvents, POSTed to the services that subscribed."""

from interpreters.sandbox.eventarc.delivering import Chances, Eventarc, Retries
from interpreters.sandbox.eventarc.events import CREATED, DELETED, MAX_PAYLOAD_BYTES, UPDATED, WRITTEN, Change
from interpreters.sandbox.eventarc.subscriptions import Subscription

__all__ = [
    "CREATED",
    "DELETED",
    "MAX_PAYLOAD_BYTES",
    "UPDATED",
    "WRITTEN",
    "Chances",
    "Change",
    "Eventarc",
    "Retries",
    "Subscription",
]
