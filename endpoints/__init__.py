"""The control of apps: who may open what to whom, and what the proxies have to know. Bytes pass in proxy."""
