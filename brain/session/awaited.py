"""What of a session waits for a person's word, or for its user's consent: that part of the fold.

Pure.
"""

from typing import Any

from brain import servers
from brain.permissions import moot, read_decision, undecided
from brain.session import consents
from brain.session.consents import Consent
from brain.session.entries import Call, Entry
from carpal.sources import is_of_role

Json = dict[str, Any]


class Awaited:
    """A part of the transcript."""

    agent: Json
    calls: dict[str, Call]
    changed: int
    consents: dict[str, Consent]
    moot: list[tuple[Entry, str]]
    _open: dict[str, Call]

    def not_inherited(self, call: Call) -> bool:
        """See Transcript."""
        raise NotImplementedError

    def stopped(self, call: Call) -> bool:
        """See Transcript."""
        raise NotImplementedError

    def _hear(self, entry: Entry, content: list[Json]) -> None:
        raise NotImplementedError

    def waits(self, call: Call) -> bool:
        """Whether an open call must not run before a person decides, or its user consents."""
        waits = undecided(call) or self._lacks_consent(call)
        return waits and not self.not_inherited(call) and not self.stopped(call)

    def _lacks_consent(self, call: Call) -> bool:
        consent = self.consents.get(call.server)
        if consent is None or consent.decision is not None or call.result is not None:
            return False
        # What was denied, in whatever way, gets its result at once.
        words = (call.decision, call.consent)
        return call.permission != "deny" and all(word is None or word.allowed for word in words)

    def waits_for(self) -> list[str]:
        """Ids of the events that wait for a person's word, or for a user's consent."""
        ids = [
            call.call_id if undecided(call) else self.consents[call.server].consent_id
            for call in self.waiting_calls()
        ]
        return list(dict.fromkeys(ids + [each.consent_id for each in self.without_tools()]))

    def without_tools(self) -> list[Consent]:
        """Consents that the agent's servers wait for before anything is known of their tools."""
        named = servers.servers(self.agent)
        return [
            each
            for each in self.consents.values()
            if each.decision is None and not each.call_id and each.server in named
        ]

    def waiting_calls(self) -> list[Call]:
        """Open calls that wait for a person, oldest first."""
        return [call for call in self._open.values() if self.waits(call)]

    def give_up_consents(self) -> None:
        """A person interrupted: whoever misses one again says so anew."""
        self.consents = {n: c for n, c in self.consents.items() if c.decision is not None}

    def _consented(self, server: str) -> None:
        """The server told its tools: so there is a credential, whoever gave it."""
        consent = self.consents.get(server)
        if consent is not None and not consent.call_id:
            del self.consents[server]

    def _on_user_tool_confirmation(self, entry: Entry) -> None:
        decision = read_decision(entry.data, entry.position)
        call = self.calls.get(entry.data["tool_use_id"])
        by_person = is_of_role(entry.source, "operator")
        stopped = call is not None and self.stopped(call)
        if why := moot(call, stopped=stopped, by_person=by_person):
            self.moot.append((entry, why))
        elif call is not None:
            call.decision = decision

    def _on_session_consent_required(self, entry: Entry) -> None:
        consent = consents.read(entry.id, entry.position, entry.data)
        self.consents[consent.server] = consent
        if call := self._open.get(consent.call_id):
            call.consent, call.unsent = None, True

    def _on_user_consent(self, entry: Entry) -> None:
        word = consents.read_word(entry.data, entry.position)
        wanted = entry.data["consent_id"]
        consent = next((c for c in self.consents.values() if c.consent_id == wanted), None)
        if why := consents.moot(consent, by_person=is_of_role(entry.source, "operator")):
            self.moot.append((entry, why))
        elif consent is not None:
            consent.decision, self.changed = word, entry.position
            if call := self._open.get(consent.call_id):
                call.consent, call.unsent = word, False
            if not word.allowed and not consent.call_id:
                text = f"[{consents.denied(consent.server, word.message)}]"
                self._hear(entry, [{"type": "text", "text": text}])
