#!/bin/sh
# Installs the programs that tests run beyond Python, git and make: `make test-deps`, on Debian, as root or through sudo.
set -eu

apt-get update -qq
apt-get install -qq -y --no-install-recommends git curl python3-venv procps postgresql pgbouncer chromium iproute2 \
  buildah podman runc netavark aardvark-dns catatonit iptables uidmap fuse-overlayfs mmdebstrap prometheus

# node checks the modules of the web page. Other packages of node bring npm, and conflict with Debian's.
if ! command -v npm > /dev/null; then
  apt-get install -qq -y --no-install-recommends nodejs npm
fi

# kubectl renders the manifests. Debian 12 has 1.20, whose kustomize does not know components; Debian 13 has 1.32.
# Of Debian 13 nothing else is ever installed: the preferences forbid it.
if ! kubectl version --client --output json 2>/dev/null | grep -q kustomizeVersion; then
  if [ "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" = bookworm ]; then
    archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' | head -n 1)
    cat > /etc/apt/preferences.d/kubernetes-client << END
Package: *
Pin: release n=trixie
Pin-Priority: -1

Package: kubectl kubernetes-client
Pin: release n=trixie
Pin-Priority: 990
END
    cat > /etc/apt/sources.list.d/kubernetes-client.sources << END
Types: deb
URIs: $archive
Suites: trixie
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
    apt-get update -qq
  fi
  apt-get install -qq -y --no-install-recommends kubernetes-client
fi
