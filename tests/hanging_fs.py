"""hanging_fs.py LOWER UPPER: the folder LOWER once more at UPPER, by FUSE and without its
library. From SIGUSR1 to SIGUSR2 it takes what it is asked and answers nothing: who asks is in
state D then, and no signal ends him, as of a server that is away. Nothing is kept, so that
LOWER may be changed beside it; locks are the kernel's, and symbolic links there are none."""
import ctypes
import os
import select
import signal
import stat
import struct
import sys

LOOKUP, FORGET, GETATTR, SETATTR = range(1, 5)
MKDIR, UNLINK, RMDIR, RENAME, LINK, OPEN, READ, WRITE, STATFS, RELEASE = 9, 10, 11, 12, 13, 14, 15, 16, 17, 18
FSYNC, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, FSYNCDIR = 20, 25, 26, 27, 28, 29, 30
CREATE, INTERRUPT, BATCH_FORGET, FALLOCATE, RENAME2 = 35, 36, 42, 43, 45
IN, WRITE_MAX, OMIT, NOW, ROOT = struct.Struct("<IIQQIIIHH"), 128 << 10, 0x3FFFFFFE, 0x3FFFFFFF, 1
libc = ctypes.CDLL(None, use_errno=True)
fds, ids, asked = {}, {}, {}  # of inodes: descriptors of O_PATH, numbers, how often they were
folders = {}
made = ROOT


def own(fd):
    return f"/proc/self/fd/{fd}"


def checked(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), "")
    return b""


def attributes(fd):
    s = os.fstat(fd)
    times = s.st_atime_ns, s.st_mtime_ns, s.st_ctime_ns
    return struct.pack("<6Q10I", s.st_ino, s.st_size, s.st_blocks, *(t // 10**9 for t in times),
                       *(t % 10**9 for t in times), s.st_mode, s.st_nlink, s.st_uid, s.st_gid, 0,
                       s.st_blksize, 0)


def entry(parent, name):
    global made
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=fds[parent])
    s = os.fstat(fd)
    node = ids.get((s.st_dev, s.st_ino))
    if node is not None:
        os.close(fd)
    else:
        node = made = made + 1
        fds[node], ids[s.st_dev, s.st_ino], asked[node] = fd, node, 0
    asked[node] += 1
    return struct.pack("<4Q2I", node, 0, 0, 0, 0, 0) + attributes(fds[node])


def forget(node, times):
    if node in asked:
        asked[node] -= times
        if asked[node] == 0:
            s = os.fstat(fds[node])
            del asked[node], ids[s.st_dev, s.st_ino]
            os.close(fds.pop(node))


def change(node, arg):
    valid, _, size, _, atime, mtime, _, atime_ns, mtime_ns, _, mode, _, uid, gid = \
        struct.unpack_from("<I4xQQQQQQIIIIIII", arg)
    fd, path = fds[node], own(fds[node])
    if valid & 1:
        os.chmod(path, mode)
    if valid & 6:
        os.chown(path, uid if valid & 2 else -1, gid if valid & 4 else -1)
    if valid & 8:
        os.truncate(path, size)
    if valid & 0x30:
        times = (ctypes.c_long * 4)(atime, NOW if valid & 0x80 else atime_ns if valid & 0x10 else OMIT,
                                    mtime, NOW if valid & 0x100 else mtime_ns if valid & 0x20 else OMIT)
        checked(libc.utimensat(-100, path.encode(), times, 0))
    return bytes(16) + attributes(fd)


def make(op, node, uid, gid, arg):
    """A name that is new, whose owner is who asks."""
    parent, fd = fds[node], None
    if op == MKDIR:
        name = arg[8:].split(b"\0")[0]
        os.mkdir(name, struct.unpack_from("<I", arg)[0], dir_fd=parent)
    else:
        name = arg[16:].split(b"\0")[0]
        flags, mode = struct.unpack_from("<II", arg)
        fd = os.open(name, flags & ~(os.O_APPEND | os.O_DIRECT) | os.O_CREAT, mode, dir_fd=parent)
    inherits = os.fstat(parent).st_mode & stat.S_ISGID
    os.chown(name, uid, -1 if inherits else gid, dir_fd=parent, follow_symlinks=False)
    return entry(node, name) + (b"" if fd is None else struct.pack("<QQ", fd, 0))


def read_folder(arg):
    fh, offset, size = struct.unpack_from("<QQI", arg)
    if offset == 0:
        folders[fh] = list(os.scandir(fh))
    out = b""
    for i, one in enumerate(folders[fh][offset:], offset + 1):
        name = os.fsencode(one.name)
        line = struct.pack("<QQII", one.inode(), i, len(name), 0) + name
        line += bytes(-len(line) % 8)
        if len(out) + len(line) > size:
            break
        out += line
    return out


def of_file(op, arg):
    fh, offset, size = struct.unpack_from("<QQI", arg.ljust(24, b"\0"))
    if op == READ:
        return os.pread(fh, size, offset)
    if op == WRITE:
        return struct.pack("<II", os.pwrite(fh, arg[40:40 + size], offset), 0)
    if op in (FSYNC, FSYNCDIR):
        os.fsync(fh)
    elif op == FALLOCATE:
        length, mode = struct.unpack_from("<QI", arg, 16)
        checked(libc.fallocate(fh, mode, ctypes.c_long(offset), ctypes.c_long(length)))
    elif op in (RELEASE, RELEASEDIR):
        folders.pop(fh, None)
        os.close(fh)
    return b""


def of_name(op, node, arg):
    parent = fds[node]
    if op == UNLINK:
        os.unlink(arg.split(b"\0")[0], dir_fd=parent)
    elif op == RMDIR:
        os.rmdir(arg.split(b"\0")[0], dir_fd=parent)
    else:
        to, flags = struct.unpack_from("<QI", arg) if op == RENAME2 else (struct.unpack_from("<Q", arg)[0], 0)
        old, new = arg[16 if op == RENAME2 else 8:].split(b"\0")[:2]
        checked(libc.renameat2(parent, old, fds[to], new, flags))
    return b""


def serve(op, node, uid, gid, arg):
    if op == INIT:
        return struct.pack("<4I2H2I2H8I", 7, 31, struct.unpack_from("<I", arg, 8)[0], 0, 0, 0, WRITE_MAX, 1,
                           *[0] * 10)
    if op == LOOKUP:
        return entry(node, arg.split(b"\0")[0])
    if op == GETATTR:
        return bytes(16) + attributes(fds[node])
    if op == SETATTR:
        return change(node, arg)
    if op in (MKDIR, CREATE):
        return make(op, node, uid, gid, arg)
    if op == LINK:
        name = arg[8:].split(b"\0")[0]
        os.link(own(fds[struct.unpack_from("<Q", arg)[0]]), name, dst_dir_fd=fds[node], follow_symlinks=True)
        return entry(node, name)
    if op in (OPEN, OPENDIR):
        flags = struct.unpack_from("<I", arg)[0] & ~(os.O_APPEND | os.O_DIRECT | os.O_NOFOLLOW)
        return struct.pack("<QQ", os.open(own(fds[node]), flags), 0)
    if op == READDIR:
        return read_folder(arg)
    if op in (READ, WRITE, FSYNC, FSYNCDIR, FALLOCATE, RELEASE, RELEASEDIR):
        return of_file(op, arg)
    if op in (UNLINK, RMDIR, RENAME, RENAME2):
        return of_name(op, node, arg)
    if op == STATFS:
        s = os.fstatvfs(fds[ROOT])
        return struct.pack("<5Q4I24x", s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree, s.f_bsize,
                           s.f_namemax, s.f_frsize, 0)
    if op == FLUSH:
        return b""
    raise OSError(38, "")  # ENOSYS


def take(fuse, request):
    """To be answered, or None."""
    _, op, unique, node, uid, gid, *_ = IN.unpack_from(request)
    arg = request[IN.size:]
    if op == FORGET:
        forget(node, struct.unpack_from("<Q", arg)[0])
    elif op == BATCH_FORGET:
        for i in range(struct.unpack_from("<I", arg)[0]):
            forget(*struct.unpack_from("<QQ", arg, 8 + 16 * i))
    elif op != INTERRUPT:
        try:
            error, data = 0, serve(op, node, uid, gid, arg)
        except OSError as e:
            error, data = e.errno, b""
        try:
            os.write(fuse, struct.pack("<IiQ", 16 + len(data), -error, unique) + data)
        except FileNotFoundError:
            pass  # who asked was interrupted


def main():
    hangs = []
    waiting = []
    signal.signal(signal.SIGUSR1, lambda *_: hangs.append(1))
    signal.signal(signal.SIGUSR2, lambda *_: hangs.clear())
    os.umask(0)
    fds[ROOT] = os.open(sys.argv[1], os.O_PATH)
    fuse = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
    checked(libc.mount(b"hanging_fs", sys.argv[2].encode(), b"fuse", 0, options.encode()))
    while True:
        if select.select([fuse], [], [], 0.1)[0]:
            try:
                waiting.append(os.read(fuse, WRITE_MAX + 4096))
            except OSError as e:
                if e.errno == 19:  # ENODEV: unmounted
                    return
        while waiting and not hangs:
            take(fuse, waiting.pop(0))


main()
