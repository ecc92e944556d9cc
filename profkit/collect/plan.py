"""The plan, for those that import it from here."""

from profkit.plan import EXPLICIT, SIGNALS, Plan

__all__ = ["EXPLICIT", "SIGNALS", "Plan"]
