"""The routes, one module a room."""

from fastapi import APIRouter

from moorage.api.routes import (
    artifacts,
    awakeables,
    bodies,
    catalog,
    claims,
    clock,
    completions,
    correlations,
    couriers,
    dead_letters,
    deliveries,
    events,
    executions,
    guards,
    history,
    inbox,
    interests,
    jobs,
    kv,
    records,
    retention,
    runs,
    schedules,
    seals,
    sessions,
    storage,
    stream,
    subscriptions,
    system,
    testing,
    timers,
    watch,
    webhooks,
)
from moorage.api.routing import Route

_USUAL = (
    records.api,
    claims.api,
    sessions.api,
    dead_letters.api,
    artifacts.api,
    interests.api,
    retention.api,
    runs.api,
    stream.api,
    completions.api,
    jobs.api,
    bodies.api,
    executions.api,
    guards.api,
    awakeables.api,
    events.api,
    correlations.api,
    webhooks.api,
    inbox.api,
    kv.api,
    timers.api,
    schedules.api,
    subscriptions.api,
    deliveries.api,
    couriers.api,
    history.api,
    watch.api,
    seals.api,
    catalog.api,
    storage.api,
    clock.api,
    system.api,
)


def routes() -> list[Route]:
    """The routes of every deployment, in the order in which they are documented."""
    return _of(*_USUAL)


def testing_routes() -> list[Route]:
    """The routes that exist only where the deployment has a test clock."""
    return _of(testing.api)


def _of(*routers: APIRouter) -> list[Route]:
    return [route for one in routers for route in one.routes if isinstance(route, Route)]
