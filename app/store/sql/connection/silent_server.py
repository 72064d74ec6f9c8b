"""Thread that ends waits for a database server that does not respond, such as one with frozen processes.

A server that works ends each statement at its time limit, and the system ends connections to a machine that
is gone. A frozen server does neither: its system confirms what arrives, and no answer comes.
"""

import logging
import threading

import psycopg

from app.store.sql.connection.server_connection import ServerConnection, open_connections

_log = logging.getLogger("rowveil.database")

_LOOK_SECONDS = 2.0
_SILENT_SECONDS = 10.0
"""Wait for a message's answer after which the server is asked on a new connection."""
_ANSWER_SECONDS = 5
"""Time in which a server accepts or refuses a new connection, also under load."""


class SilentServer:
    """Closes connections whose server answers neither on them nor on a new connection.

    Their statements fail as on a broken connection: callers get a 503, and loops of the service try again. A
    server that is only slow, such as during a migration, is waited for.
    """

    def __init__(self) -> None:
        """Start the thread, which looks at all connections of this process."""
        self._closing = threading.Event()
        threading.Thread(target=self._run, name="rowveil-silent-server", daemon=True).start()

    def close(self) -> None:
        """Let the thread end; it is not waited for."""
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.wait(_LOOK_SECONDS):
            overdue = [each for each in open_connections() if each.has_waited(_SILENT_SECONDS)]
            if overdue and not _responds(overdue[0]):
                closed = sum(each.break_off(_SILENT_SECONDS) for each in overdue)
                _log.error("the database does not respond: %d connections to it are closed", closed)


def _responds(connection: ServerConnection) -> bool:
    """Whether the server of a connection accepts or refuses another one in time."""
    try:
        connection.connect_again(_ANSWER_SECONDS).close()
    except psycopg.errors.ConnectionTimeout:
        return False
    except psycopg.Error:  # it refuses, or is gone: then the system ends the connections
        return True
    return True
