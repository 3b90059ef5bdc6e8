"""The one settings module: everything comes from the environment, or from `.env` beside `manage.py`.

`.env.example` and `docs/settings.md` list the same names; tests/test_settings_docs.py holds the three equal.
"""

import socket
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote, urlsplit

import django_stubs_ext
import environ
from csp.constants import NONCE, NONE, SELF
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff

from messaging import clients, redis_url
from operations import embedded
from operations.database import silence as database_silence

django_stubs_ext.monkeypatch()  # so that generics such as ModelAdmin[Host] work at run time

BASE_DIR = Path(__file__).resolve().parent.parent
env = environ.FileAwareEnv()
env.read_env(BASE_DIR / "host.env")  # of a GPU host that has joined; `manage.py join` writes it, and it wins over .env
env.read_env(BASE_DIR / ".env")

# --- the web site; a host that has joined has a key of its own in place of the platform's
COMPUTE_HOST_KEY = env("COMPUTE_HOST_KEY", default="")
SECRET_KEY = "" if COMPUTE_HOST_KEY else env("SECRET_KEY")
SECRET_KEY_FALLBACKS = [] if COMPUTE_HOST_KEY else env.list("SECRET_KEY_FALLBACKS", default=[])
DEBUG = env.bool("DEBUG", default=False)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])
COMPUTE_HTTPS = env.bool("COMPUTE_HTTPS", default=False)
COMPUTE_HSTS = env.str("COMPUTE_HSTS", default="host", choices=("host", "subdomains", "preload"))
COMPUTE_HTTP_ADDRESS = env("COMPUTE_HTTP_ADDRESS", default="127.0.0.1:8000")
COMPUTE_WEB_PROCESSES = env.int("COMPUTE_WEB_PROCESSES", default=0)
COMPUTE_DRAIN_SECONDS = env.float("COMPUTE_DRAIN_SECONDS", default=10)

# --- sign-in by an OpenID Connect provider, besides e-mail address and password
COMPUTE_OIDC_ISSUER = env("COMPUTE_OIDC_ISSUER", default="").rstrip("/")
COMPUTE_OIDC_CLIENT_ID = env("COMPUTE_OIDC_CLIENT_ID", default="")
COMPUTE_OIDC_CLIENT_SECRET = env("COMPUTE_OIDC_CLIENT_SECRET", default="")
COMPUTE_OIDC_NAME = env("COMPUTE_OIDC_NAME", default="Single sign-on")
COMPUTE_OIDC_NEW_ACCOUNTS = env.list("COMPUTE_OIDC_NEW_ACCOUNTS", default=[])

# --- data and services
COMPUTE_VAR_DIR = (BASE_DIR / env("COMPUTE_VAR_DIR", default="var")).resolve()
COMPUTE_STORAGE_DIR = str(BASE_DIR / (env("COMPUTE_STORAGE_DIR", default="") or COMPUTE_VAR_DIR / "folders"))
COMPUTE_BACKUP_DIR = str(BASE_DIR / (env("COMPUTE_BACKUP_DIR", default="") or COMPUTE_VAR_DIR / "backups"))
COMPUTE_BACKUP_HOURS = env.int("COMPUTE_BACKUP_HOURS", default=24)
COMPUTE_BACKUPS_KEPT = env.int("COMPUTE_BACKUPS_KEPT", default=7)
COMPUTE_TRASH_DAYS = env.int("COMPUTE_TRASH_DAYS", default=30)
COMPUTE_EVENTS_DAYS = env.int("COMPUTE_EVENTS_DAYS", default=365)
COMPUTE_STATISTICS_DAYS = env.int("COMPUTE_STATISTICS_DAYS", default=365)
COMPUTE_USAGE_DAYS = env.int("COMPUTE_USAGE_DAYS", default=0)
COMPUTE_SESSIONS_DAYS = env.int("COMPUTE_SESSIONS_DAYS", default=1825)
COMPUTE_MAX_ARRAY_TASKS = env.int("COMPUTE_MAX_ARRAY_TASKS", default=10_000)
COMPUTE_AUDIT_DAYS = env.int("COMPUTE_AUDIT_DAYS", default=1825)
COMPUTE_SIGN_IN_DAYS = env.int("COMPUTE_SIGN_IN_DAYS", default=90)
COMPUTE_LOGIN_HOURS = env.int("COMPUTE_LOGIN_HOURS", default=720)
COMPUTE_LOGIN_IDLE_HOURS = env.int("COMPUTE_LOGIN_IDLE_HOURS", default=336)
COMPUTE_BREACHED_PASSWORDS = env("COMPUTE_BREACHED_PASSWORDS", default="")
COMPUTE_API_REQUESTS_PER_MINUTE = env.int("COMPUTE_API_REQUESTS_PER_MINUTE", default=1200)
COMPUTE_UPLOAD_HOURS = env.int("COMPUTE_UPLOAD_HOURS", default=168)
COMPUTE_IMPORT_NETWORKS = env.list("COMPUTE_IMPORT_NETWORKS", default=[])
COMPUTE_PROVIDER_COMMANDS = env("COMPUTE_PROVIDER_COMMANDS", default="")
COMPUTE_WEBHOOK_NETWORKS = env.list("COMPUTE_WEBHOOK_NETWORKS", default=[])
COMPUTE_METRICS_TOKEN = env("COMPUTE_METRICS_TOKEN", default="")
COMPUTE_METRICS_NETWORKS = env.list("COMPUTE_METRICS_NETWORKS", default=[])
DATABASE_URL = env("DATABASE_URL", default="")
REDIS_URL = env("REDIS_URL", default="")
COMPUTE_HOSTS_DATABASE_ADDRESS = env("COMPUTE_HOSTS_DATABASE_ADDRESS", default="")
COMPUTE_HOSTS_REDIS_ADDRESS = env("COMPUTE_HOSTS_REDIS_ADDRESS", default="")
COMPUTE_REDIS_SEND_URL = env("COMPUTE_REDIS_SEND_URL", default="")
COMPUTE_SLURM_PREFIX = env("COMPUTE_SLURM_PREFIX", default="")
COMPUTE_CLUSTER_RANGE = env("COMPUTE_CLUSTER_RANGE", default="100.64.0.0/12")
COMPUTE_REGISTRY_KEYS = env.list("COMPUTE_REGISTRY_KEYS", default=[])

# --- this host, where a host worker runs
COMPUTE_HOST_NAME = env("COMPUTE_HOST_NAME", default="") or socket.gethostname()
COMPUTE_HOST_GROUP = env("COMPUTE_HOST_GROUP", default="default")
COMPUTE_HOST_CPU = env.int("COMPUTE_HOST_CPU", default=0)
COMPUTE_HOST_MEMORY = env("COMPUTE_HOST_MEMORY", default="")
COMPUTE_HOST_GPUS = env.list("COMPUTE_HOST_GPUS", default=[])
COMPUTE_SHARED_ENGINE = env.bool("COMPUTE_SHARED_ENGINE", default=False)
COMPUTE_DISK_RESERVE = env("COMPUTE_DISK_RESERVE", default="2g")
COMPUTE_INODE_RESERVE = env.int("COMPUTE_INODE_RESERVE", default=5)
COMPUTE_RUNTIME = env("COMPUTE_RUNTIME", default="hostworker.runtime.docker.DockerRuntime")
COMPUTE_DOCKER_URL = env("COMPUTE_DOCKER_URL", default="unix:///var/run/docker.sock")
COMPUTE_SANDBOX_POOL = env.int("COMPUTE_SANDBOX_POOL", default=8)
COMPUTE_SIMULATED_GPUS = env("COMPUTE_SIMULATED_GPUS", default="")
COMPUTE_CDI_DIRS = env.list("COMPUTE_CDI_DIRS", default=["/etc/cdi", "/var/run/cdi"])
COMPUTE_FGPU_DIR = env("COMPUTE_FGPU_DIR", default="") or str(COMPUTE_VAR_DIR / "fgpu")
COMPUTE_ARBITER_DIR = env("COMPUTE_ARBITER_DIR", default="")
COMPUTE_GPU_CONTEXT_MEMORY = env("COMPUTE_GPU_CONTEXT_MEMORY", default="512m")
COMPUTE_MPS_DIR = env("COMPUTE_MPS_DIR", default="")
COMPUTE_PIN_CPUS = env.bool("COMPUTE_PIN_CPUS", default=True)
COMPUTE_FIREWALL = env.bool("COMPUTE_FIREWALL", default=True)
COMPUTE_CLUSTER_ADDRESS = env("COMPUTE_CLUSTER_ADDRESS", default="")
COMPUTE_CLUSTER_PEERS = env.list("COMPUTE_CLUSTER_PEERS", default=[])
COMPUTE_PRIVILEGED_HELPER = env.bool("COMPUTE_PRIVILEGED_HELPER", default=True)
COMPUTE_LOG_LEVEL = env("COMPUTE_LOG_LEVEL", default="INFO")
COMPUTE_LOG_FORMAT = env.str("COMPUTE_LOG_FORMAT", default="text", choices=("text", "json"))
COMPUTE_LOG_REQUESTS = env.bool("COMPUTE_LOG_REQUESTS", default=False)

# --- apps of sessions, each on an origin of its own: below the apps' domain, or where there is none at a port
COMPUTE_PUBLIC_URL = env("COMPUTE_PUBLIC_URL", default="") or f"http://{COMPUTE_HTTP_ADDRESS}"
COMPUTE_APPS_DOMAIN = env("COMPUTE_APPS_DOMAIN", default="apps.localhost")
COMPUTE_APPS_KEYS = env.list("COMPUTE_APPS_KEYS", default=[]) or ([f"default:{SECRET_KEY}"] if SECRET_KEY else [])
COMPUTE_APP_PORTS = env("COMPUTE_APP_PORTS", default="")
COMPUTE_SESSION_SUBNETS = env.list("COMPUTE_SESSION_SUBNETS", default=["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"])
COMPUTE_TRUSTED_PROXIES = env.list("COMPUTE_TRUSTED_PROXIES", default=[])
COMPUTE_GATEWAY_ADDRESS = env("COMPUTE_GATEWAY_ADDRESS", default="")
COMPUTE_GATEWAY_URL = env("COMPUTE_GATEWAY_URL", default="") or (
    f"http://{COMPUTE_GATEWAY_ADDRESS}" if COMPUTE_GATEWAY_ADDRESS else ""
)
COMPUTE_PROMETHEUS_URL = env("COMPUTE_PROMETHEUS_URL", default="")
COMPUTE_SSH_ADDRESS = env("COMPUTE_SSH_ADDRESS", default="127.0.0.1:8022")

INSTALLED_APPS = [
    "gpuplatform.administration.apps.Administration",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "gpuplatform.static_config.StaticFiles",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "axes",
    "channels",
    "django_htmx",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "knox",
    "rest_framework",
    "gpuplatform",
    "operations",
    "translation",
    "restapi",
    "accounts",
    "django.contrib.auth",  # after accounts, whose commands of the same names record what they do
    "resources",
    "hostaccess",
    "folders",
    "sessions",
    "deployments",
    "imports",
    "arrays",
    "scheduler",
    "hostworker",
    "sshserver",
    "endpoints",
    "notifications",
    "webhooks",
    "specs",
    "pages",
]

MIDDLEWARE = [
    "operations.metrics.requests.MeasureRequests",
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "gpuplatform.serving.middleware.StreamsInThreads",
    "gpuplatform.serving.middleware.StaticFilesOfVersions",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "gpuplatform.serving.middleware.NoNulInAdmin",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "accounts.middleware.RecordLogins",
    "accounts.middleware.audit_origin",
    "accounts.middleware.DemandSecondFactor",
    "axes.middleware.AxesMiddleware",
]

ROOT_URLCONF = "gpuplatform.urls"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

DATABASES = {"default": env.db_url_config(DATABASE_URL or embedded.database_url(COMPUTE_VAR_DIR))}
DATABASES["default"]["ENGINE"] = "operations.database"
# Under ASGI every request has its own thread, so connections are pooled per process, not per thread. A server that says
# nothing more, since packets are dropped or it is frozen, is given up within seconds, and gives up its clients and what
# they had locked likewise. pgbouncer refuses `options`, as it must: connections own advisory locks.
_is_cluster = "," in str(DATABASES["default"]["HOST"])  # several servers, of which one takes writes
DATABASES["default"]["OPTIONS"] = {
    **({"target_session_attrs": "read-write"} if _is_cluster else {}),
    "connect_timeout": 3,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 8000,
    "options": "-c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3"
    " -c tcp_user_timeout=8000 -c client_connection_check_interval=5s -c lock_timeout=60s"
    " -c idle_in_transaction_session_timeout=5min",
    **DATABASES["default"].get("OPTIONS", {}),
    "prepare_threshold": 5,  # None, Django's default, forbids to prepare; its own cursors do not
    # An attempt to connect is given up soon, since the pauses between its repetitions double: after an outage the next
    # one would come as late as the outage was long.
    "pool": {
        "min_size": 1,
        "max_size": 40,
        "timeout": 3,
        "reconnect_timeout": 3,
        "connection_class": database_silence.WatchedConnection,
    },
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

_redis_socket = quote(str(embedded.redis_socket(COMPUTE_VAR_DIR)))
CHANNEL_REDIS_URL = REDIS_URL or f"unix://{_redis_socket}"
# The channel layer keeps idle connections open. Retries reopen one that Redis has closed, so that the first message
# after an outage does not fail.
_redis_host = clients.channel_host(
    COMPUTE_REDIS_SEND_URL or CHANNEL_REDIS_URL, retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), retries=3)
)
CHANNEL_LAYERS = {
    "default": {"BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer", "CONFIG": {"hosts": [_redis_host]}}
}

CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": [CHANNEL_REDIS_URL],
        "OPTIONS": {
            "pool_class": clients.PrimaryPool,
            "serializer": "gpuplatform.cache_values.JsonSerializer",
            "socket_connect_timeout": 2,
            "socket_timeout": 2,
        },
    }
}

CELERY_BROKER_URL = redis_url.broker_url(CHANNEL_REDIS_URL)
CELERY_BROKER_WRITE_URL = redis_url.broker_url(COMPUTE_REDIS_SEND_URL or CHANNEL_REDIS_URL)
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False  # who could send to Redis could end every worker
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
# A request must not hang while Redis is down: the row is committed, and periodic tasks repeat what the message does.
CELERY_TASK_PUBLISH_RETRY = False
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "max_retries": 0,  # of senders; workers reconnect without limit, see above
    "socket_connect_timeout": 2,
    "socket_timeout": 10,
    "socket_keepalive": True,
    # No copies of messages in hand: a worker that cannot tell Redis that a task is done, since it fails over, would
    # count the message as in hand for ever and take no other. A lost one is repeated by periodic tasks within seconds.
    "ack_emulation": False,
    **redis_url.broker_options(CHANNEL_REDIS_URL),
}
CELERY_TIMEZONE = "UTC"

# In the login session, not in a cookie: apps of sessions could read or set a cookie of that name.
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"

# --- users
AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
] + [
    {"NAME": f"accounts.signing_in.passwords.{name}"} for name in ("ContextWordValidator", "BreachedPasswordValidator")
]
PASSWORD_HASHERS = [
    "accounts.signing_in.passwords.Argon2idHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",  # of before; hashed anew at the next sign-in
]
PASSWORD_RESET_TIMEOUT = 24 * 3600
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "account_login"
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_USERNAME_FORM_FIELD = "username"  # in the credentials of `authenticate`
AXES_USERNAME_CALLABLE = "accounts.signing_in.lockout.folded_username"
AXES_HANDLER = "accounts.signing_in.lockout.LockoutHandler"
AXES_LOCKOUT_TEMPLATE = "accounts/locked_out.html"
AXES_VERBOSE = False
# Sign-in is django-allauth's. Accounts come from administrators, invitations and the identity provider, so nobody signs
# up, and every address counts as verified: see docs/adr/0042-sign-in-by-django-allauth.md.
ACCOUNT_ADAPTER = "accounts.adapters.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_EMAIL_UNKNOWN_ACCOUNTS = False  # or anybody could have mail sent to anybody
ACCOUNT_EMAIL_NOTIFICATIONS = True  # of a changed password, and of changes of second factors
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_FORMS = {
    "login": "accounts.signing_in.forms.SignInForm",
    "change_password": "accounts.signing_in.forms.PasswordChangeForm",
    "reset_password": "accounts.signing_in.forms.PasswordResetForm",
    "reset_password_from_key": "accounts.signing_in.forms.NewPasswordForm",
    "reauthenticate": "accounts.signing_in.forms.ConfirmPasswordForm",
}
# Failures are counted by django-axes, in the database and together with those of the API. What remains here is kept in
# Redis: how often mails are asked for, and how often codes are tried for one account from all addresses together.
ACCOUNT_RATE_LIMITS = {
    **dict.fromkeys(("login", "signup", "change_password", "reauthenticate", "manage_email")),
    "login_failed": "5/5m/key",
    "reset_password": "20/m/ip,5/h/key",
    "reset_password_from_key": "20/m/ip",
}
MFA_ADAPTER = "accounts.adapters.SecondFactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_TOTP_ISSUER = "GPU Platform"
MFA_TOTP_TOLERANCE = 1  # 30 s before and after, for clocks of telephones
MFA_FORMS = {
    "authenticate": "accounts.second_factors.forms.CodeForm",
    "reauthenticate": "accounts.second_factors.forms.ConfirmCodeForm",
    "activate_totp": "accounts.second_factors.forms.ActivateAppForm",
    "add_webauthn": "accounts.second_factors.forms.AddPasskeyForm",
    "edit_webauthn": "accounts.second_factors.forms.RenamePasskeyForm",
    "authenticate_webauthn": "accounts.second_factors.forms.PasskeyForm",
    "login_webauthn": "accounts.second_factors.forms.PasskeySignInForm",
    "reauthenticate_webauthn": "accounts.second_factors.forms.ConfirmPasskeyForm",
}
SOCIALACCOUNT_ADAPTER = "accounts.adapters.IdentityAdapter"
SOCIALACCOUNT_REAUTHENTICATION_REQUIRED = True
SOCIALACCOUNT_EMAIL_AUTHENTICATION = True  # an address that the provider has verified is the account's
SOCIALACCOUNT_EMAIL_AUTHENTICATION_AUTO_CONNECT = True
SOCIALACCOUNT_PROVIDERS = {
    "openid_connect": {
        "OAUTH_PKCE_ENABLED": True,
        "APPS": [
            {
                "provider_id": "sso",
                "name": COMPUTE_OIDC_NAME,
                "client_id": COMPUTE_OIDC_CLIENT_ID,
                "secret": COMPUTE_OIDC_CLIENT_SECRET,
                "settings": {"server_url": COMPUTE_OIDC_ISSUER},
            }
        ]
        if COMPUTE_OIDC_ISSUER
        else [],
    }
}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "accounts.credentials.authentication.ApiTokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["gpuplatform.rest.parsing.ExactJSONParser"],
    "DEFAULT_PAGINATION_CLASS": "gpuplatform.rest.parsing.Pages",
    "PAGE_SIZE": 50,
    "EXCEPTION_HANDLER": "gpuplatform.rest.errors.handle_exception",
    "DEFAULT_THROTTLE_CLASSES": ["restapi.throttling.UserThrottle"],
    "DEFAULT_THROTTLE_RATES": {"token": "30/min"},
    "NUM_PROXIES": 0,  # the server sets REMOTE_ADDR from trusted proxies; X-Forwarded-For may be forged
    "DEFAULT_SCHEMA_CLASS": "restapi.schema.ApiSchema",
    "URL_FORMAT_OVERRIDE": None,  # the client says in Accept what it takes
}
KNOX_TOKEN_MODEL = "accounts.ApiToken"  # noqa: S105  # the name of a table
REST_KNOX = {"AUTH_HEADER_PREFIX": "Token", "AUTO_REFRESH": False}
SPECTACULAR_SETTINGS = {
    "TITLE": "GPU Platform",
    "DESCRIPTION": "Start, watch and end compute sessions with a fraction of a GPU.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {"deepLinking": False},  # its links would stand inside of its buttons
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "gpuplatform.rest.examples.add_examples",
    ],
    "ENUM_NAME_OVERRIDES": {
        "AppStateEnum": "sessions.models.EndpointState.values",
        "ChangeReportStateEnum": "sessions.models.ReportState.values",
        "ConversionStateEnum": "sessions.models.ConversionState.values",
        "NoticeKindEnum": "notifications.models.KIND_CHOICES",
        "DeliveryStateEnum": "webhooks.models.DeliveryState.choices",
        "AnnouncementLevelEnum": "notifications.serializers.LEVELS",
        "EntryKindEnum": "folders.serializers.KINDS",
        "SessionStatusEnum": "sessions.lifecycle.Status",
        "HostStatusEnum": "resources.models.HostStatus.choices",
        "HealthKindEnum": "deployments.models.HealthKind.values",
        "DeploymentStateEnum": "deployments.models.DeploymentState.values",
        "RolloutStrategyEnum": "deployments.models.RolloutStrategy.choices",
        "ImportStateEnum": "imports.models.ImportState.choices",
        "ImportTargetEnum": "imports.models.ImportTarget.choices",
        "ImportKindEnum": "imports.models.KIND_CHOICES",
        "CredentialKindEnum": "imports.models.CredentialKind.choices",
        "ProjectRoleEnum": "accounts.models.ProjectRole.values",
    },
}

# --- security
SESSION_COOKIE_NAME = "__Host-gp_session" if COMPUTE_HTTPS else "gp_session"
CSRF_COOKIE_NAME = "__Host-gp_csrf" if COMPUTE_HTTPS else "gp_csrf"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = COMPUTE_HTTPS
SECURE_HSTS_SECONDS = 31_536_000 if COMPUTE_HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = COMPUTE_HSTS in ("subdomains", "preload")
SECURE_HSTS_PRELOAD = COMPUTE_HSTS == "preload"
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]  # that these two are not set is the administrator's choice
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if COMPUTE_HTTPS else None
SECURE_REDIRECT_EXEMPT = [r"^(healthz|readyz|metrics)$"]
# At sign-in; from then on each login session has its own.
SESSION_COOKIE_AGE = min(COMPUTE_LOGIN_HOURS, COMPUTE_LOGIN_IDLE_HOURS) * 3600
CSRF_COOKIE_HTTPONLY = True
X_FRAME_OPTIONS = "DENY"
# No inline script, style or handler, nothing from elsewhere; the nonce is for the import map and the terminal's styles.
_public_url = urlsplit(COMPUTE_PUBLIC_URL)
_apps_host = f"*.{COMPUTE_APPS_DOMAIN}" if COMPUTE_APPS_DOMAIN else _public_url.hostname
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF, NONCE],
        "style-src": [SELF, NONCE],
        "img-src": [SELF, "data:"],  # Tabler's icons, and plots in notebooks
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF, f"{_public_url.scheme}://{_apps_host}:*"],  # opening an app redirects to its origin
        "object-src": [NONE],
        "frame-ancestors": [NONE],
        "base-uri": [NONE],
    }
}

# --- e-mail: notifications to users who want them so
globals().update(env.email_url("EMAIL_URL", default="consolemail://"))  # EMAIL_BACKEND, EMAIL_HOST, ...
EMAIL_TIMEOUT = 20
DEFAULT_FROM_EMAIL = env("DEFAULT_FROM_EMAIL", default="GPU Platform <gpuplatform@localhost>")

# --- language, time, files
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("ko", "한국어")]
LOCALE_PATHS = [BASE_DIR / "locale"]
LANGUAGE_COOKIE_NAME = "__Host-gp_language" if COMPUTE_HTTPS else "gp_language"
LANGUAGE_COOKIE_AGE = 365 * 24 * 3600
LANGUAGE_COOKIE_SECURE = COMPUTE_HTTPS
LANGUAGE_COOKIE_HTTPONLY = True
LANGUAGE_COOKIE_SAMESITE = "Lax"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"
STATIC_ROOT = COMPUTE_VAR_DIR / "static"
_npm = BASE_DIR / "node_modules"
STATICFILES_DIRS = [
    BASE_DIR / "static",
    ("help", BASE_DIR / "docs/images"),
    ("vendor/tabler/css", _npm / "@tabler/core/dist/css"),
    ("vendor/tabler/js", _npm / "@tabler/core/dist/js"),
    ("vendor/htmx", _npm / "htmx.org/dist"),
    ("vendor/idiomorph", _npm / "idiomorph/dist"),
    ("vendor/markdown-it", _npm / "markdown-it/dist/browser"),
    ("vendor/xterm", _npm / "@xterm"),
    ("vendor/uplot", _npm / "uplot/dist"),
    ("vendor/tus", _npm / "tus-js-client/dist"),
]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        if DEBUG
        else "whitenoise.storage.CompressedManifestStaticFilesStorage"
    },
}
WHITENOISE_KEEP_ONLY_HASHED_FILES = True

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "text": {"format": "{asctime} {levelname:<7} {name}: {message}", "style": "{"},
        "json": {"()": "operations.logs.lines.JsonLines"},
    },
    "filters": {
        "session": {"()": "operations.logs.lines.NoteSession"},
        "secrets": {"()": "operations.logs.secrets.HideSecrets"},
    },
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "formatter": COMPUTE_LOG_FORMAT,
            "filters": ["session", "secrets"],
        }
    },
    "root": {"handlers": ["console"], "level": COMPUTE_LOG_LEVEL},
    "loggers": {
        **{name: {"level": "WARNING"} for name in ("axes", "celery")},
        "django": {"handlers": []},  # its own one, for DEBUG, would write each line twice
        "django.request": {"level": "ERROR"},  # 4xx responses are the client's errors
    },
}
