"""The pages of deployments: their list, the page of one, and the forms that make them and their revisions.

Used by gpuplatform.
"""
