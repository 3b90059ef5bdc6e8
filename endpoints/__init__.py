"""The control plane of apps: opening, publishing, sharing, tickets and routes. The data plane is `proxy`."""
