"""HTTP/1.1 messages: headers, responses and their parser.

Used by folders and gpuplatform.
"""
