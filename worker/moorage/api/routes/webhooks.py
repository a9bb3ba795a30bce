"""Webhooks: whoever is declared as a sender calls in, and each verified call is an event once."""

from typing import Annotated, Any

from fastapi import Path
from starlette.responses import Response

from moorage.api.answers import Answer
from moorage.api.auth import as_sender
from moorage.api.fields import ANY_BODY, Shown, fails
from moorage.api.requests import ApiRequest
from moorage.api.routing import opened, router
from moorage.catalog.senders import Sender
from moorage.kernel.errors import JsonInvalid, PayloadTooLarge, UnsupportedMediaType
from moorage.messages.inbox import webhooks
from moorage.messages.inbox.accept import accept, kept_until

api = router("events")

Name = Annotated[str, Path(description="The sender's name, as it was declared.")]


class WebhookShown(Shown):
    """The event that a webhook is. Not `added`: it came before, under the same delivery id, and what came first stands;
    `content_differs` says that this one had other content, which is kept nowhere."""

    event_id: str
    added: bool
    content_differs: bool | None = None


class ChallengeShown(Shown):
    """What Slack sent to see that the URL is served."""

    challenge: str


@api.post(
    "/webhooks/{sender}",
    status_code=202,
    response_model=WebhookShown,
    responses={
        200: {"model": WebhookShown | ChallengeShown, "description": "It came before; or it was Slack's challenge."},
        **fails(JsonInvalid, PayloadTooLarge, UnsupportedMediaType),
    },
    openapi_extra={**opened("own"), **ANY_BODY},
)
async def take_webhook(request: ApiRequest, sender: Name) -> Response:
    """Take a webhook whose signature over the raw body is the sender's, and answer once its event is committed.

    The body is at most 1 MiB. A refused webhook does not use up its delivery id.
    """
    told = request.headers.get("content-length", "")
    webhooks.check_size(int(told) if told.isdecimal() and len(told) <= 15 else 0)
    raw = await request.body()
    webhooks.check_size(len(raw))

    async def take(known: Sender) -> Response:
        webhook = webhooks.Webhook.read(known, dict(request.headers), raw)
        if webhook.challenge is not None:
            return Answer({"challenge": webhook.challenge})
        event, actor = webhook.event(), webhooks.actor_of(known)
        [accepted] = await accept(request.db, request.caller, request.now, [event], actor=actor)
        if accepted.added:
            request.wake(kept_until(request.now), "upkeep")
        answer: dict[str, Any] = {"event_id": accepted.event.event_id, "added": accepted.added}
        if accepted.differs:
            answer["content_differs"] = True
        return Answer(answer, 202 if accepted.added else 200)

    return await as_sender(request, sender, raw, take)
