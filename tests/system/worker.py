#!/usr/bin/env python3
"""A worker for the cases: worker.py BYTES [WAIT_SECONDS] takes a lease through the installed libgmb,
says which tenant it belongs to, and stays until it is ended. What fails is said, with status 3.
LIBGMB names another library than the installed one."""
import ctypes
import glob
import os
import signal
import sys


class Params(ctypes.Structure):
    """struct gmb_lease_params."""
    _fields_ = [('size', ctypes.c_size_t), ('device', ctypes.c_char_p), ('bytes', ctypes.c_uint64),
                ('max_bytes', ctypes.c_uint64), ('chunk_bytes', ctypes.c_uint64),
                ('wait_ns', ctypes.c_uint64), ('label', ctypes.c_char_p)]


def main():
    size = int(sys.argv[1])
    wait = int(sys.argv[2]) if len(sys.argv) > 2 else 30
    gmb = ctypes.CDLL(os.environ.get('LIBGMB') or
                      glob.glob('/usr/local/lib/**/libgmb.so*', recursive=True)[0])
    gmb.gmb_tenant.restype = gmb.gmb_error_text.restype = ctypes.c_char_p
    session, lease = ctypes.c_void_p(), ctypes.c_void_p()
    params = Params(size=ctypes.sizeof(Params), bytes=size, wait_ns=wait * 10**9, label=b'held')
    if gmb.gmb_connect(None, ctypes.byref(session)) != 0 or \
            gmb.gmb_lease_new(session, ctypes.byref(params), ctypes.byref(lease)) != 0:
        print('refused:', gmb.gmb_error_text().decode(), flush=True)
        return 3
    # Whatever becomes of the broker, somebody looks for it.
    gmb.gmb_thread_start(session)
    print('holds as', gmb.gmb_tenant(session).decode(), flush=True)
    signal.pause()
    return 0


if __name__ == '__main__':
    sys.exit(main())
