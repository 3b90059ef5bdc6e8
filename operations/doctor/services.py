"""Checks of the platform's own processes, and of what runs beside them."""

import asyncio
from collections import Counter
from contextlib import closing
from datetime import timedelta
from typing import Final

import asyncssh
from django.conf import settings
from django.core.checks import run_checks
from docker import APIClient

from engine.containers import INSTALLATION_LABEL
from engine.engine import ExecError
from operations.doctor import advice
from operations.doctor.findings import Finding, Verdict
from operations.health import checks as health
from operations.machine import address, docker_engine
from resources import clock, heartbeats
from resources.heartbeats import HeartbeatName
from resources.models import Host, Installation
from sessions.access.engine_address import engine_behind
from sshserver.host_key import NAME

HEARTBEAT_LIMIT: Final = timedelta(seconds=20)
SWEEP_LIMIT_SECONDS: Final = 30
SSH_SECONDS: Final = 3


def docker_client() -> APIClient:
    """Return a client of the engine that answers soon or not at all."""
    return APIClient(base_url=settings.COMPUTE_DOCKER_URL, timeout=docker_engine.ANSWER_SECONDS)


def settings_are_valid() -> Finding:
    """Return the first error that Django's system checks and those of the platform find in the settings."""
    found = run_checks()
    errors = [message for message in found if message.is_serious()]
    if errors:
        return Finding(Verdict.FAIL, " ".join(errors[0].msg.split()), errors[0].hint or "")
    if settings.COMPUTE_HTTPS and not settings.COMPUTE_TRUSTED_PROXIES:
        text = "COMPUTE_HTTPS without COMPUTE_TRUSTED_PROXIES: all users count as one address for limits"
        return Finding(Verdict.WARN, text, "name the reverse proxy's address in COMPUTE_TRUSTED_PROXIES")
    return Finding(Verdict.OK, "valid")


def web() -> Finding:
    """Return whether this installation's web server is healthy."""
    where = address.address_from(settings.COMPUTE_HTTP_ADDRESS)
    status, installation = address.health_of(where, settings.ALLOWED_HOSTS)
    if status is None and where.is_free():  # asked for last: nobody but root may try a port below 1024
        text = f"{settings.COMPUTE_HTTP_ADDRESS} is free; the platform is not running"
        return advice.away(text, "web") if advice.manager_title() else Finding(Verdict.OK, text)
    if status and installation != health.installation():
        text = f"{settings.COMPUTE_HTTP_ADDRESS} is taken by another installation of the platform"
        return Finding(Verdict.FAIL, text, "COMPUTE_HTTP_ADDRESS")
    if status == 200:
        return Finding(Verdict.OK, f"healthy at {where.url}")
    if status == 503:
        return Finding(Verdict.FAIL, f"{where.url}healthz reports a fault", "see database and Redis above")
    return Finding(Verdict.FAIL, f"{settings.COMPUTE_HTTP_ADDRESS} is taken by another program", "COMPUTE_HTTP_ADDRESS")


def scheduler() -> Finding:
    """Return whether the scheduler carries out what beat asks of it."""
    age = heartbeats.ages([HeartbeatName.BEAT]).get(HeartbeatName.BEAT)
    if age is None or age > SWEEP_LIMIT_SECONDS:
        return advice.away("no scheduler and beat of this installation have run lately", "scheduler", "beat")
    return Finding(Verdict.OK, f"enforced deadlines {age:.0f} s ago")


def ssh() -> Finding:
    """Return whether this installation's SSH server answers, known by its host key."""
    if not settings.COMPUTE_SSH_ADDRESS:
        return Finding(Verdict.OK, "off: COMPUTE_SSH_ADDRESS is empty")
    where = address.address_from(settings.COMPUTE_SSH_ADDRESS, address.SSH_SETTING)
    try:
        own = asyncssh.read_private_key(settings.COMPUTE_VAR_DIR / NAME).get_fingerprint()
    except (OSError, asyncssh.KeyImportError):
        own = ""
    try:
        found = asyncio.run(asyncio.wait_for(asyncssh.get_server_host_key(where.host, where.port), SSH_SECONDS))
    except (OSError, asyncssh.Error, TimeoutError):
        found = None
    if found is None and where.is_free(address.SSH_SETTING):
        return advice.away(f"nothing listens at {where.text}", "ssh")
    if found is None or found.get_fingerprint() != own:
        return Finding(Verdict.FAIL, f"{where.text} is taken by another program", "COMPUTE_SSH_ADDRESS")
    return Finding(Verdict.OK, f"at {where.text}, host key {own}")


def gateway() -> Finding:
    """Return whether this host's gateway passes requests on."""
    if not settings.COMPUTE_GATEWAY_ADDRESS:
        return Finding(Verdict.OK, "none is set; a host needs one where the web process is on another machine")
    engine = engine_behind(settings.COMPUTE_GATEWAY_URL, settings.COMPUTE_HOST_NAME)
    try:
        answer = asyncio.run(engine.request("GET", "/containers/gp-none-0/json"))
    except ExecError as failure:
        hint = "run `manage.py gateway` here, with the settings of this machine"
        return Finding(Verdict.FAIL, f"{settings.COMPUTE_GATEWAY_URL}: {failure}", hint)
    if answer.status == 404:
        return Finding(Verdict.OK, f"passes requests on at {settings.COMPUTE_GATEWAY_URL}")
    return Finding(
        Verdict.FAIL, f"{settings.COMPUTE_GATEWAY_URL} is taken by another program", "COMPUTE_GATEWAY_ADDRESS"
    )


def neighbours() -> Finding:
    """Return whether another installation has sessions on this host's engine, whose resources both would lend."""
    with closing(docker_client()) as client:
        labels = [each["Labels"] for each in client.containers(filters={"label": [INSTALLATION_LABEL]})]
    own = Installation.current_key()
    others = Counter(each[INSTALLATION_LABEL] for each in labels if each[INSTALLATION_LABEL] != own)
    if not others:
        return Finding(Verdict.OK, "no other installation uses this engine")
    text = f"{len(others)} other installations run {others.total()} containers on this engine"
    advice = (
        "a host worker starts beside another one only with COMPUTE_SHARED_ENGINE=true; give each its part by "
        "COMPUTE_HOST_CPU, COMPUTE_HOST_MEMORY and COMPUTE_HOST_GPUS"
    )
    return Finding(Verdict.WARN, text, advice)


def hosts() -> Finding:
    """Return which hosts are registered, and whether they beat."""
    registered = list(Host.objects.all())
    if not registered:
        return Finding(Verdict.WARN, "no host has registered", advice.start("host"))
    silent = [host.name for host in registered if clock.now() - host.heartbeat_at > HEARTBEAT_LIMIT]
    if silent:
        return Finding(Verdict.WARN, f"silent: {', '.join(silent)}", "start the platform, or the worker on that host")
    return Finding(Verdict.OK, ", ".join(f"{host.name} {host.status}" for host in registered))
