"""Who may reach an app: signed cookies, the sign-in's detour, and the control plane's word.

Imported by the listener and the gateway.
"""
