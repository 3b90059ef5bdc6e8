"""What a web process serves, for uvicorn: the application and the protocol of connections."""

from typing import Final

from django.conf import settings
from django.template import engines  # noqa: TID251  # the texts are those of its files
from django.template.loaders.cached import Loader as CachedLoader
from django.template.loaders.locmem import Loader as MemoryLoader

from endpoints.data_plane import data_plane
from gpuplatform.asgi import platform_with
from gpuplatform.serving.data_plane import Lifespan, Served, apps_served, require_valid_settings
from proxy.counters import ConnectionCounters
from proxy.listener.dispatch import PlatformOnly, app_hosts, uvicorn_protocol
from sessions.access.app_addresses import site

TEMPLATES: Final = (".html", ".txt")  # suffixes; an editor's own files are left alone
DRAIN_SECONDS: Final = 1.0  # for which apps' connections go on at the end


def platform_and_apps(counters: ConnectionCounters | None, host: str) -> Served:
    """Return what `manage.py web` serves: uvicorn's own connections for the platform, the app proxy's for apps.

    `host` is where the ports of apps are opened.
    """
    require_valid_settings()  # which loads all views
    load_templates()
    plane = data_plane(counters=counters)
    is_app_host = app_hosts(site(), plane.authorizer.table)
    platform = PlatformOnly(is_app_host, platform_with(plane.counters))
    return Lifespan(apps_served(plane, host, DRAIN_SECONDS), platform), uvicorn_protocol(plane, is_app_host)


def load_templates() -> None:
    """Read the pages' templates: an upgrade replaces the files, while this process renders pages with its own code.

    Each is compiled as it is first rendered.
    """
    folder = settings.BASE_DIR / "templates"
    paths = [path for path in folder.rglob("[!.]*") if path.suffix in TEMPLATES]
    texts = {str(path.relative_to(folder)): path.read_text() for path in paths}
    engine = engines["django"].engine  # type: ignore[attr-defined]  # of Django's own template language
    (cached,) = engine.template_loaders
    assert isinstance(cached, CachedLoader)
    cached.loaders.insert(0, MemoryLoader(engine, texts))
