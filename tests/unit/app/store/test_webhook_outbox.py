"""The SQL of messages to receivers of webhooks: claims, quotas and turns."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import sqlalchemy as sa

from app.store.sql import webhook_outbox as deliveries
from app.store.sql.db import Database
from app.store.sql.models import Delivery
from tests.unit.app.store.stored_rows import NOW, delivery


def test_a_message_is_claimed_once_and_again_when_its_claim_is_over(database: Database) -> None:
    with database.write() as session:
        deliveries.insert(session, delivery())
    lease = NOW + timedelta(seconds=50)

    def claim(moment: datetime) -> list[int]:
        with database.write() as session:
            return [row.attempts for row in deliveries.claim_due(session, moment, lease, 8, 8, {}, {})]

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(claim, [NOW] * 4)) == [[], [], [], [1]]
    lease += timedelta(seconds=50)
    assert claim(lease - timedelta(seconds=50)) == [2]
    with database.write() as session:
        (late,) = session.scalars(sa.select(Delivery.id))
        assert not deliveries.record(session, late, 1, state="delivered", ended_at=NOW)
        assert deliveries.record(session, late, 2, state="delivered", ended_at=NOW)
        assert not deliveries.record(session, late, 2, state="given_up", ended_at=NOW)
    assert claim(lease + timedelta(days=1)) == []
    with database.write() as session:
        assert deliveries.delete_old(session, NOW, 9) == 0
        assert deliveries.delete_old(session, NOW + timedelta(seconds=1), 9) == 1


def queues(owners: dict[str, int]) -> dict[tuple[str, str], int]:
    """Owner -> number, as those of their messages without a receiver."""
    return {(owner, ""): number for owner, number in owners.items()}


def test_messages_are_claimed_up_to_a_quota_of_each_owner(database: Database) -> None:
    """The oldest first; one owner's many messages leave room for the others'."""
    owners = ["ada"] * 5 + ["ben"] + ["cleo"] * 3
    with database.write() as session:
        for number, owner in enumerate(owners):
            deliveries.insert(session, delivery(owner=owner, due_at=NOW - timedelta(seconds=60 - number)))
        for _ in range(3):  # of an older version
            deliveries.insert(session, delivery())
        deliveries.insert(session, delivery(owner="dora", due_at=NOW + timedelta(seconds=1)))
        deliveries.insert(session, delivery(owner="emil", state="delivered"))
        assert deliveries.next_due(session) == NOW - timedelta(seconds=60)
        assert deliveries.count_pending(session) == len(owners) + 4

    def claim(most: int, active: dict[str, int]) -> list[str]:
        with database.write() as session:
            lease = NOW + timedelta(seconds=50)
            found = deliveries.claim_due(session, NOW, lease, most, 2, queues(active), {})
            return [row.owner for row in found]

    assert sorted(claim(3, {})) == ["ada", "ben", "cleo"]
    assert sorted(claim(8, {"ada": 2, "ben": 1})) == ["", "", "cleo", "cleo"]
    assert sorted(claim(8, {"ada": 1, "cleo": 2, "": 2})) == ["ada"]
    assert sorted(claim(8, {})) == ["", "ada", "ada"]
    assert claim(8, {}) == ["ada"]
    assert claim(8, {}) == []


def test_owners_with_many_overdue_messages_take_turns_with_the_others(database: Database) -> None:
    """Their messages are all older than that of the owner who came last, such as those to dead receivers."""
    slow = [f"slow {number}" for number in range(30)]
    with database.write() as session:
        for owner in slow:
            for number in range(3):
                due = NOW - timedelta(seconds=60 - number)
                deliveries.insert(session, delivery(owner=owner, due_at=due))
        deliveries.insert(session, delivery(owner="ada", due_at=NOW))

    def claim(most: int, active: dict[str, int], turns: dict[str, int]) -> list[str]:
        with database.write() as session:
            lease = NOW + timedelta(seconds=50)
            found = deliveries.claim_due(session, NOW, lease, most, 2, queues(active), queues(turns))
            return [row.owner for row in found]

    assert set(claim(8, {}, {})) <= set(slow)
    assert claim(1, dict.fromkeys(slow[:4], 1), dict.fromkeys(slow, 1)) == ["ada"]
    assert claim(1, {}, {owner: turn for turn, owner in enumerate(reversed(slow), 1)}) == [slow[-1]]
    assert set(claim(8, {slow[-1]: 1}, {})) <= set(slow[:-1])


def test_receivers_of_an_owner_take_turns(database: Database) -> None:
    """One that does not answer has the oldest messages, and is tried next to the others, not before them."""
    with database.write() as session:
        for number in range(40):
            due = NOW - timedelta(seconds=600 - number)
            deliveries.insert(session, delivery(owner="ada", receiver="00", due_at=due))
        for number in range(3):
            due = NOW - timedelta(seconds=60 - number)
            deliveries.insert(session, delivery(owner="ada", receiver="01", due_at=due))
        deliveries.insert(session, delivery(owner="ben", receiver="00"))

    def claim(active: dict[tuple[str, str], int], turns: dict[tuple[str, str], int]) -> list[tuple[str, str]]:
        with database.write() as session:
            found = deliveries.claim_due(session, NOW, NOW + timedelta(seconds=50), 3, 2, active, turns)
            return sorted((row.owner, row.receiver) for row in found)

    dead, good, ben = ("ada", "00"), ("ada", "01"), ("ben", "00")
    assert claim({}, {}) == [dead, good, ben]
    assert claim({dead: 1}, {dead: 9, good: 8}) == [good]
    assert claim({dead: 1}, {dead: 8, good: 9}) == [good]
    assert claim({dead: 1}, {dead: 8, good: 9}) == [dead]
    assert claim({dead: 1, good: 1}, {}) == []
    assert claim({}, {}) == [dead, dead]
