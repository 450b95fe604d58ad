"""Chart-IMG on this machine: keys, plans, limits, the documented errors, and charts drawn as in the fixtures."""

from interpreters.sandbox.chart_img.accounts import SandboxAccount
from interpreters.sandbox.chart_img.faults import GARBAGE, RESET, WRONG_TYPE, Fault
from interpreters.sandbox.chart_img.ledger import Asked
from interpreters.sandbox.chart_img.plans import BASIC, MEGA, PLANS, PRO, ULTRA, Plan
from interpreters.sandbox.chart_img.server import ChartImgServer

__all__ = [
    "BASIC",
    "GARBAGE",
    "MEGA",
    "PLANS",
    "PRO",
    "RESET",
    "ULTRA",
    "WRONG_TYPE",
    "Asked",
    "ChartImgServer",
    "Fault",
    "Plan",
    "SandboxAccount",
]
