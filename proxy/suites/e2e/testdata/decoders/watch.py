"""Prints each line of a gzip watch as soon as it has come, and fails unless the body is exactly one member."""

import sys
import urllib.request
import zlib

request = urllib.request.Request(sys.argv[1], headers={"Accept-Encoding": "gzip"})
with urllib.request.urlopen(request) as response:
    member = zlib.decompressobj(16 + zlib.MAX_WBITS)
    while part := response.read1():
        sys.stdout.buffer.write(member.decompress(part))
        sys.stdout.flush()
if not member.eof or member.unused_data:
    sys.exit("not one whole member: %d bytes behind it" % len(member.unused_data))
