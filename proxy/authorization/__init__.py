"""Who may reach an app: signed cookies, the sign-in's detour, and the control plane's word.

Used by deployments, endpoints, engine, gpuplatform, hostaccess and sessions.
"""
