"""How much of the engine each tenant has had.

The one idea: one virtual counter of served tokens a tenant; whoever has the least goes first, and a tenant that was
away comes back level with those who are waiting, so that idleness earns no credit. It must not know requests, blocks
or time.

Source: Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024), the Virtual Token Counter. Its bound
holds for a bounded number of tenants: an endless row of tenants that never came before is always served first.
"""

from __future__ import annotations

from collections.abc import Iterable

PROMPT_WEIGHT = 1  # of a computed prompt token; the paper's weights
OUTPUT_WEIGHT = 2  # of a generated token
_MANY = 1024  # tenants remembered before the forgettable ones are looked for


class Shares:
    """Weighted tokens by tenant. Counters only grow."""

    def __init__(self) -> None:
        self._served: dict[str, int] = {}
        self._last_left = ""  # the tenant that was the last to have nobody in line

    def of(self, tenant: str) -> int:
        """Weighted tokens that the tenant has been served, lifts included."""
        return self._served.get(tenant, 0)

    def charge(self, tenant: str, weighted_tokens: int) -> None:
        """The tenant has been served."""
        self._served[tenant] = self._served.get(tenant, 0) + weighted_tokens

    def arrives(self, tenant: str, waiting: Iterable[str], least: int | None) -> None:
        """A tenant with nobody in line gets somebody in line. least: the least counter of those waiting, if any."""
        floor = self.of(self._last_left) if least is None else least
        self._served[tenant] = max(self.of(tenant), floor)
        if len(self._served) > _MANY:  # those at or below the floor would be lifted to it anyway
            keep = {tenant, self._last_left, *waiting}
            self._served = {name: count for name, count in self._served.items() if count > floor or name in keep}

    def leaves(self, tenant: str) -> None:
        """Nobody of this tenant stands in line any more."""
        self._last_left = tenant
