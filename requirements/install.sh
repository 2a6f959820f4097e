#!/bin/sh
# install.sh LOCK [WHEEL…]: installs into /packages what an image takes over, without what only
# compilers, debuggers and the packages' own tests read, and compiled, for images are read-only.
set -eu

lock=$1
shift
pip install --no-cache-dir --no-compile --no-deps --ignore-installed --require-hashes \
    --prefix=/packages -r "$lock"
if [ $# -gt 0 ]; then
    pip install --no-cache-dir --no-compile --no-deps --ignore-installed --no-index \
        --prefix=/packages "$@"
fi

cd /packages/lib/python3*/site-packages
find . -type d \( -name tests -o -name include \) -prune -exec rm -r {} +
find . -type f \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' \) -delete
# Not what patchelf has rewritten: it need not load any more after this.
find . -type f -name '*.so*' -not -path './*.libs/*' -exec strip --strip-unneeded {} +

python -m compileall -q --invalidation-mode unchecked-hash -s /packages -p /usr/local .
