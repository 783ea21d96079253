"""`/fleet`: the fleet that this host joined."""

from anyplug.fleet.overview import FleetView
from anyplug.frontends.console.api_request import ApiRequest
from anyplug.frontends.console.endpoints import Endpoint


async def show_fleet(request: ApiRequest) -> FleetView:
    """Return the fleet; it is empty if this host joined none."""
    fleet = request.host.fleet
    return fleet.view() if fleet is not None else FleetView(url="", workers=[], plugins=[])


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/fleet",
        name="showFleet",
        for_tokens=True,
        about="Show the fleet that this host joined",
        handle=show_fleet,
        answer=FleetView,
    ),
]
