#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Subject: ansible-core 2.19.0, a plugins/modules/NAME.yml beside an action plugin plugins/action/NAME.py
# Expected: documents the action, as "ansible-test sanity --test action-plugin-docs" accepts the file as its documentation
# Seen: ansible-doc does not find it; a NAME.py that has only DOCUMENTATION is found
# Source: ansible_test, action-plugin-docs.py; MODULE_IGNORE_EXTS in Ansible's configuration settings
# Here: the collection is built with a module of documentation for each action, calibration/build.py
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv tools
tools/bin/pip install --quiet ansible-core==2.19.0
place=ansible_collections/some/thing
mkdir -p "$place/plugins/action" "$place/plugins/modules"
printf 'namespace: some\nname: thing\nversion: 1.0.0\n' > "$place/galaxy.yml"
for name in one two; do
    printf 'from ansible.plugins.action import ActionBase\n\n\nclass ActionModule(ActionBase):\n    pass\n' > "$place/plugins/action/$name.py"
done
printf 'DOCUMENTATION:\n  module: one\n  short_description: Does one thing\n' > "$place/plugins/modules/one.yml"
printf 'DOCUMENTATION = """\nmodule: two\nshort_description: Does another thing\n"""\n' > "$place/plugins/modules/two.py"
export ANSIBLE_COLLECTIONS_PATH="$work" LC_ALL=C.UTF-8
seen=$(tools/bin/ansible-doc --list --type module some.thing 2> errors.txt | tr -s ' ' | sed 's/ $//')
echo "found: $seen"
[ "$seen" = "some.thing.two Does another thing" ]
