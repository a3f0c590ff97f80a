"""Probes of PostgreSQL through psycopg, psycopg2, aiopg, asyncpg and pg8000.

The classes decide nothing: an OperationalError may be a deadlock or a wrong password. The SQLSTATE
decides (PostgreSQL documentation, appendix A). If a connection could not be made, psycopg and psycopg2 have
no SQLSTATE; then the text of libpq decides.
"""

from __future__ import annotations

import re

from celery_dlq.classify.builtin.stdlib import unless_lasting
from celery_dlq.classify.evidence import (
    arguments,
    mapping_item,
    message,
    shown_name,
    sqlstate,
    text_of,
)
from celery_dlq.classify.table import Finding, transient_if
from celery_dlq.model.states import Verdict

# -- Messages without an SQLSTATE -------------------------------------------------------------------

# A connection failed, or broke. The server speaks the language of ``lc_messages``, the client that of
# its locale. The translations are from PostgreSQL 15: src/backend/po and src/interfaces/libpq/po.

#: Another attempt meets the same again.
_REFUSED = re.compile(
    r"password authentication failed|no password supplied|does not exist|no pg_hba\.conf entry"
    r"|not permitted to log in|certificate verify failed|Name or service not known"
    r"|No address associated with hostname|nodename nor servname provided"
    r"|server does not support SSL"
)

_PASSING = (
    r"too many clients already|remaining connection slots|too many connections for"
    r"|the database system is (?:starting up|shutting down|in recovery mode|not yet accepting)"
    r"|the database system is not accepting connections"
    r"|terminating connection due to administrator command"
    r"|Connection refused|Connection reset by peer|Connection timed out|Broken pipe"
    r"|No route to host|Network is unreachable|Temporary failure in name resolution"
    r"|timeout expired|server closed the connection unexpectedly|no connection to the server"
    r"|SSL connection has been closed|SSL SYSCALL error|EOF detected|unexpected eof while reading"
    r"|could not (?:receive data from|send data to) server"
    r"|connection (?:is|was|already|has been) closed|the connection is lost"
    # psycopg2/pool.py; pg8000/core.py; pgbouncer's own refusals.
    r"|connection pool exhausted|^network error|query_wait_timeout|server conn crashed"
    r"|no more connections allowed"
)

# Too many clients, reserved slots, starting, shutting down, recovering, not accepting, ended by the
# administrator; then the client's: closed, timeout, TLS closed, no connection, no data.
_GERMAN = (
    r"schon zu viele Verbindungen|die verbleibenden Verbindungen sind"
    r"|das Datenbanksystem (?:startet|fährt herunter|ist im Wiederherstellungsmodus|nimmt keine)"
    r"|aufgrund von Anweisung des Administrators|Server beendete die Verbindung unerwartet"
    r"|Timeout abgelaufen|SSL-Verbindung wurde unerwartet|keine Verbindung mit dem Server"
    r"|konnte keine Daten vom Server empfangen|Verbindungsaufbau abgelehnt"
)
_SPANISH = (
    r"ya tenemos demasiados clientes|las conexiones restantes están reservadas"
    r"|el sistema de bases? de datos (?:está (?:iniciándose|apagándose|en modo)|no está aceptando)"
    r"|debido a una orden del administrador|el servidor ha cerrado la conexión inesperadamente"
    r"|tiempo de espera agotado|la conexión SSL se ha cerrado|no hay conexión con el servidor"
    r"|no se pudo recibir datos del servidor|Conexión rehusada"
)
_FRENCH = (
    r"trop de clients sont déjà connectés|les emplacements de connexions restants"
    r"|le système de bases? de données (?:se lance|s'arrête|est en cours|n'accepte pas)"
    r"|suite à la demande de l'administrateur|la connexion au serveur a été coupée"
    r"|le délai est dépassé|la connexion SSL a été fermée|aucune connexion au serveur"
    r"|n'a pas pu recevoir des données depuis le serveur|Connexion refusée"
)
_ITALIAN = (
    r"troppi client già connessi|i rimanenti slot di connessione|il database si sta"
    r"|il database è in modalità di ripristino|il sistema di database non accetta"
    r"|su comando dell'amministratore|il server ha chiuso la connessione|timeout scaduto"
    r"|la connessione SSL è stata chiusa|nessuna connessione al server"
    r"|ricezione dati dal server fallita|Connessione rifiutata"
)
_RUSSIAN = (
    r"уже слишком много клиентов|оставшиеся слоты подключений"
    r"|система баз данных (?:запускается|останавливается|в режиме)|система БД не принимает"
    r"|по команде администратора|сервер неожиданно закрыл|SSL-соединение было неожиданно"
    r"|нет соединения с сервером|не удалось получить данные с сервера|В соединении отказано"
)
_JAPANESE = (
    r"現在クライアント数が多すぎます|残りの接続スロットは"
    r"|データベースシステムは(?:起動処理中|シャットダウン|リカバリモード|接続を受け付けて)"
    r"|管理者コマンドにより|サーバーとの接続が想定外に|タイムアウト期間が過ぎました"
    r"|SSL接続が意図せずに|サーバーへの接続がありません|サーバーからデータを受信できません"
    r"|接続を拒否されました"
)
_KOREAN = (
    r"최대 동시 접속자 수를 초과|남은 연결 슬롯은"
    r"|데이터베이스 시스템이 (?:새로 가동|중지|자동 복구)|접속을 허용하지 않습니다"
    r"|관리자 요청에 의해서|서버가 갑자기 연결을|SSL 연결이 예상치|서버에 대한 연결이 없음"
    r"|서버로부터 데이터를 받지"
)
_CHINESE = (
    r"客户端连接过多|剩余连接槽位|数据库系统(?:正在启动|正在关闭|在恢复模式|不接受连接)"
    r"|由于管理员命令|服务器已意外关闭连接|SSL 连接被意外关闭|没有到服务器的连接"
    r"|无法从服务器接收数据|拒绝连接"
)
_TRANSLATED = (
    _GERMAN, _SPANISH, _FRENCH, _ITALIAN, _RUSSIAN, _JAPANESE, _KOREAN, _CHINESE,
)  # fmt: skip

#: Another attempt may connect.
_WILL_PASS = re.compile("|".join((_PASSING, *_TRANSLATED)))

#: 57014 of ``statement_timeout`` or of authentication, not of a user's cancel
#: (src/backend/tcop/postgres.c).
_STATEMENT_TIMEOUT = re.compile(
    "statement timeout|canceling authentication due to timeout|wegen Zeitüberschreitung der Anfrage"
    "|se agotó el tiempo de espera de sentencias|à cause du délai écoulé"
    "|annullamento dell'istruzione a causa di timeout|отменено из-за тайм-аута"
    "|ステートメントのタイムアウトのため|명령실행시간 초과로|由于语句执行超时"
)

# -- Probes -----------------------------------------------------------------------------------------

# PostgreSQL documentation 13.5 (40001, 40P01) and Npgsql's PostgresException.IsTransient, without
# what needs an operator. 25P03, 25P04 and 57P05 are the server's limits on idle or long transactions.
TRANSIENT_SQLSTATES = frozenset(
    {
        "08000", "08001", "08003", "08004", "08006", "08007", "25P03", "25P04",
        "53000", "53100", "53200", "53300", "53400", "55006", "55P03",
        "57P01", "57P02", "57P03", "57P05", "58000", "58030",
    }
)  # fmt: skip
# Class 40, transaction rollback, as a whole.
_ROLLBACK = "40"

# SQLSTATEs that mean several things. 57014: a timeout is about load, a user's cancel is not.
# 0A000: a migration ran under a prepared statement, a new statement works
# (src/backend/utils/cache/plancache.c; the second text is asyncpg's own). 08P01: pgbouncer's refusals.
_WILL_PASS_WITH = {
    "57014": _STATEMENT_TIMEOUT,
    "0A000": re.compile("cached plan must not change result type|cached statement plan is invalid"),
    "08P01": re.compile(
        "query_wait_timeout|server conn crashed|no more connections allowed|client_idle_timeout"
        "|pgbouncer cannot connect to server|server login has been failing"
    ),
}


def sqlstate_of(exc: BaseException) -> Finding | None:
    """The SQLSTATE, and the text of those that mean several things."""
    found = sqlstate(exc)
    if found is None:
        return None
    code, source = found
    return _by_sqlstate(code, source, message(exc) if code in _WILL_PASS_WITH else "")


# ISO/IEC 9075: data, integrity, rights, syntax and their like. Other classes belong to a vendor.
_LASTING_CLASSES = frozenset({"0A", "21", "22", "23", "26", "28", "34", "3D", "3F", "42", "44"})
# ODBC's and MySQL's: the link failed, a timeout.
_OTHER_STATES = frozenset({"08S01", "HYT00", "HYT01"})


def by_state(code: str, source: str) -> Finding | None:
    """The finding about an SQLSTATE of an unknown driver, which may have states of its own."""
    if code in _OTHER_STATES:
        return Finding(Verdict.TRANSIENT, "pg.sqlstate", f"sqlstate={code} from {source}")
    finding = _by_sqlstate(code, source, "")
    is_sure = finding.verdict is Verdict.TRANSIENT or code[:2] in _LASTING_CLASSES
    return finding if is_sure else None


def _by_sqlstate(code: str, source: str, text: str) -> Finding:
    evidence = f"sqlstate={code} from {source}"
    if code in _WILL_PASS_WITH:
        words = _WILL_PASS_WITH[code].search(text)
        if words is not None:
            return Finding(Verdict.TRANSIENT, "pg.sqlstate", f"{evidence}, {words[0]!r}")
    passes = code in TRANSIENT_SQLSTATES or code.startswith(_ROLLBACK)
    return transient_if(passes, "pg.sqlstate", evidence)


def postgres_error(exc: BaseException) -> Finding | None:
    """The SQLSTATE, else libpq's text.

    A rollback has neither if it fails because the connection just broke ("sending query failed: another
    command is already in progress"). The error that broke the connection is its context.
    """
    return sqlstate_of(exc) or postgres_text(message(exc))


def passing_class(exc: BaseException) -> Finding:
    """psycopg2 has a class for each SQLSTATE, and fills in the code only where the server sent one."""
    evidence = f"type={shown_name(type(exc))}"
    return sqlstate_of(exc) or Finding(Verdict.TRANSIENT, "pg.sqlstate", evidence)


def cancelled(exc: BaseException) -> Finding:
    """psycopg2's class for 57014."""
    return sqlstate_of(exc) or _by_sqlstate("57014", "the type", message(exc))


def pg8000_error(exc: BaseException) -> Finding | None:
    """pg8000/core.py: the fields of the server's message as a dict, ``C`` the code, ``M`` the text."""
    fields = next(iter(arguments(exc)), None)
    code = text_of(mapping_item(fields, "C"))
    if code is not None:
        return _by_sqlstate(code, "args[0]['C']", text_of(mapping_item(fields, "M")) or "")
    text = message(exc)
    if text.startswith("Can't create a connection"):
        return unless_lasting(exc, "pg.message", 'message has "Can\'t create a connection"')
    return postgres_text(text)


def postgres_text(text: str) -> Finding | None:
    """The finding about a connection that, as the text says, was refused or broke."""
    # With several hosts, or a quoted name, one message may hold both kinds: the refusal counts.
    found = _REFUSED.search(text)
    if found is not None:
        return Finding(Verdict.TERMINAL, "pg.message", f"message has {found[0]!r}")
    found = _WILL_PASS.search(text)
    if found is not None:
        return Finding(Verdict.TRANSIENT, "pg.message", f"message has {found[0]!r}")
    return None
