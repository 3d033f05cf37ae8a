#!/bin/sh
# Bundles the parts of Apache ECharts that reports draw with. `make assets` calls it; needs npm and a registry.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=${1:?a folder to build in}
mkdir -p "$work"
cp "$here/package.json" "$here/package-lock.json" "$here/selection.js" "$work"
cd "$work"
npm ci --no-audit --no-fund --ignore-scripts
modules=node_modules
{
  cat $modules/echarts/NOTICE
  printf '\n\nApache License 2.0: http://www.apache.org/licenses/LICENSE-2.0\nIt contains parts of the following.\n'
  for part in echarts/licenses/LICENSE-d3:d3 zrender/LICENSE:zrender tslib/LICENSE.txt:tslib; do
    printf '\n---- %s\n\n' "${part#*:}"
    cat "$modules/${part%:*}"
  done
} > notice.txt
npx esbuild selection.js --bundle --minify --format=iife --global-name=echarts --legal-comments=none \
  --target=es2020 "--banner:js=/*!
$(cat notice.txt)
*/" --outfile="$here/echarts.min.js"
cp $modules/echarts/LICENSE $modules/echarts/NOTICE "$here"
cd "$here"
sha256sum echarts.min.js LICENSE NOTICE > SHA256SUMS
