#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Subject: ansible-builder 3.2.0, introspect, on meta/execution-environment.yml of an installed collection
# Expected: "python: [package]" is valid there, as in the execution-environment.yml that it builds from
# Seen: TypeError: a collection must name a file with its requirements
# Source: ansible_builder/_target_scripts/introspect.py, CollectionDefinition.get_dependency
# Here: ansible/meta/execution-environment.yml names files
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv tools
tools/bin/pip install --quiet ansible-builder==3.2.0 setuptools==80.9.0
place=all/ansible_collections/some/thing
mkdir -p "$place/meta"
echo 'namespace: some' > "$place/galaxy.yml"
cat > "$place/meta/execution-environment.yml" <<'EOF'
version: 3
dependencies:
  python:
    - requests
EOF
code=0
tools/bin/ansible-builder introspect all > out.txt 2>&1 || code=$?
seen=$(grep -o '^TypeError: .*' out.txt || tail -n 1 out.txt)
echo "inline: exit code $code, $seen"
echo requests > "$place/requirements.txt"
printf 'version: 3\ndependencies:\n  python: requirements.txt\n' > "$place/meta/execution-environment.yml"
tools/bin/ansible-builder introspect all | grep -q requests
case $code:$seen in
    0:* | *:requests*) exit 1 ;;
    *TypeError*) exit 0 ;;
    *) exit 1 ;;
esac
