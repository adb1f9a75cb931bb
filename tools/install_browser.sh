#!/bin/sh
# Bring Chromium for the browser tests where we may; where we may not, they are skipped.
for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null 2>&1 && exit 0
done
if [ -n "${BRAINWEAVE_CHROMIUM:-}" ]; then
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing Chromium for the browser tests (once) ..."
    (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium) >/dev/null 2>&1 && exit 0
    echo "Chromium could not be installed: the browser tests will be skipped." >&2
    exit 0
fi
echo "No Chromium here, and no right to install it: the browser tests will be skipped." >&2
exit 0
