"""A story as plain text, for a terminal or a mail: the three answers, and nothing but the story."""

from collections.abc import Iterator
from datetime import datetime

from approvals.audit.story import Authorized, EffectStory, Story


def as_text(story: Story) -> str:
    """The three questions with their answers. Times in UTC."""
    return "\n".join(_lines(story)) + "\n"


def _lines(story: Story) -> Iterator[str]:
    yield f"{story.title} ({story.status.word.lower()}), action {story.action_id}"
    yield f"asked by {story.agent}, run {story.run_id}, step {story.step_id}, at {_time(story.asked_at)}"
    yield ""
    yield "1. What exactly was authorized, by whom, under which policy?"
    if story.authorized is None:
        yield (
            "   The details of the decision were erased."
            if story.erased
            else "   Nothing: no decision is recorded."
        )
    else:
        yield from _authorized(story.authorized)
    yield ""
    yield "2. What evidence is there of its outcome?"
    if not story.effects:
        yield "   None was to be expected: nothing was to be sent."
    for effect in story.effects:
        yield from _evidence(effect)
    yield ""
    yield "3. Why was another attempt allowed?"
    if not story.again:
        tried = any(effect.attempts for effect in story.effects)
        yield f"   There was no other attempt{'' if tried else ', nor a first'}."
    for effect in story.effects:
        for attempt in effect.again:
            yield f"   {effect.name}, attempt {attempt.number} at {_time(attempt.started_at)}: {attempt.why}"
            if attempt.permission is not None:
                granted = attempt.permission
                yield f"     Recorded before it by {granted.granted_by} at {_time(granted.granted_at)}."
            for fact in attempt.permission_facts:
                if fact.text:
                    yield f"     {fact.name}: {fact.text}"


def _authorized(authorized: Authorized) -> Iterator[str]:
    yield f"   {authorized.sentence} at {_time(authorized.decided_at)}."
    if authorized.rule or authorized.policy_version:
        yield f"   Rule “{authorized.rule}”, policy version {authorized.policy_version}."
    if authorized.reason:
        yield f"   Reason: {authorized.reason}"
    yield f"   {authorized.kind}, schema version {authorized.schema_version}:"
    for fact in authorized.parameters:
        yield f"     {fact.name}: {fact.text}"
    yield f"   Fingerprint {authorized.fingerprint}"
    if authorized.matches is not None:
        yield (
            "   Every effect in the ledger carries the same fingerprint."
            if authorized.matches
            else "   An effect in the ledger carries ANOTHER fingerprint."
        )


def _evidence(effect: EffectStory) -> Iterator[str]:
    yield f"   {effect.name}: {effect.word.word}. {effect.message or effect.sentence}"
    yield f"     Our key {effect.operation_key}, sent as {effect.provider_key}"
    for receipt in effect.receipts:
        how = "in its answer" if receipt.source == "response" else "in its books, looked up by our key"
        at = _time(receipt.received_at)
        yield f"     Receipt {receipt.reference} ({receipt.provider_status}), {how}, at {at}"
    for attempt in effect.attempts:
        reason = f" ({attempt.reason})" if attempt.reason else ""
        yield f"     Attempt {attempt.number} at {_time(attempt.started_at)}: {attempt.outcome}{reason}"
    for look_up in effect.look_ups:
        references = ", ".join(str(match.get("reference", "")) for match in look_up.matches)
        found = f"found {references}" if references else "found nothing"
        if not look_up.complete:
            found = f"could not be read whole ({look_up.reason})"
        yield f"     Look-up at {_time(look_up.asked_at)}: {found}"
    for case in effect.cases:
        until = f"settled: {case.settlement}" if case.settled_at else f"open until {_time(case.review_by)}"
        yield f"     Case for {case.owner}: {case.reason} ({until})"


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
