# The gateway as an image: one stage bundles src/ and its packages, one installs what cannot be bundled, and the last has both.
# The base is pinned by the digest of its index, which has all platforms. To take a newer one, in all stages and in the label:
# docker buildx imagetools inspect node:VERSION-slim
FROM node:26.10.0-slim@sha256:ec7758ee051e457b468b32bde57b0879010b325bb9862718e9615225ce4aaae1 AS build
WORKDIR /app
COPY package.json package-lock.json ./
# No package may run a script while the image is built; argon2, the one native package, comes with binaries for glibc.
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY tools ./tools
COPY src ./src
RUN ["node", "tools/build.ts"]

FROM node:26.10.0-slim@sha256:ec7758ee051e457b468b32bde57b0879010b325bb9862718e9615225ce4aaae1 AS dependencies
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci --omit=dev --ignore-scripts --no-audit --no-fund
# A platform for which it has none fails here and not with the first key.
RUN ["node", "-e", "import('argon2').then((argon2) => argon2.hash('x'))"]

FROM node:26.10.0-slim@sha256:ec7758ee051e457b468b32bde57b0879010b325bb9862718e9615225ce4aaae1

LABEL org.opencontainers.image.title="tollgate" \
      org.opencontainers.image.description="An OpenAI-compatible gateway: its own keys, a YAML routing table, exact bytes and truthful streams." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.base.name="docker.io/library/node:26.10.0-slim" \
      org.opencontainers.image.base.digest="sha256:ec7758ee051e457b468b32bde57b0879010b325bb9862718e9615225ce4aaae1"

# What installs packages has no work in the finished image, and most findings of scanners are in it.
RUN rm -rf /usr/local/lib/node_modules /usr/local/bin/npm /usr/local/bin/npx /usr/local/bin/corepack \
           /usr/local/bin/yarn /usr/local/bin/yarnpkg /opt/yarn-* \
    && ln -s /app/bin/tollgate.js /usr/local/bin/tollgate

ENV NODE_ENV=production
WORKDIR /app
# Beside argon2 and what loads at need, the licences of the packages, and their versions for scanners.
COPY --from=dependencies /app/node_modules ./node_modules
COPY package.json config.yaml LICENSE ./
COPY bin ./bin
COPY --from=build /app/dist ./dist

# All of it belongs to root. The process writes to this folder alone (the SQLite store, its generated secret, use that the
# store has not taken yet), so the root file system can be read-only.
RUN mkdir data && chown 1000:1000 data
VOLUME ["/app/data"]
# The user `node`, by number: Kubernetes cannot tell from a name that it is not root.
USER 1000:1000

# Inside a container 127.0.0.1 is unreachable from outside; config.yaml takes its `listen.host` from here, and so should
# one that is mounted over it. The admin listener stays on 127.0.0.1 unless the configuration says otherwise.
ENV HOST=0.0.0.0
EXPOSE 8080 9090

# A configuration with another `listen.port` needs the same number in the variable PORT.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.PORT || 8080}/health`, { signal: AbortSignal.timeout(4000) }).then((answer) => process.exit(answer.ok ? 0 : 1), () => process.exit(1))"]

# Exec form: Node is process 1 and gets the signals itself, and SIGTERM drains. Give the container longer to stop than
# `drain.delay` and `drain.timeout` together. The flags are those of bin/tollgate.js, where they are explained.
STOPSIGNAL SIGTERM
ENTRYPOINT ["node", "--managed-zone-memory", "--memory-pool-timeout=2", "--initial-old-space-size=64", "dist/main.js"]
CMD ["serve"]
