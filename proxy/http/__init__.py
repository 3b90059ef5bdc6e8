"""HTTP/1.1 messages: headers, responses and their parser.

Imported by the other rooms of the proxy.
"""
