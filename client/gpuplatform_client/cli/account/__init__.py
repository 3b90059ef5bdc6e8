"""Commands of who somebody is to the platform: log-in, account, credentials and projects."""
