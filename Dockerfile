# The gateway as an image. Node runs the TypeScript of src/ itself, so there is nothing to build.
FROM node:26-slim

ENV NODE_ENV=production
WORKDIR /app

# Dependencies first: this layer changes only with the lock file. argon2 comes with binaries for glibc; no compiler needed.
COPY package.json package-lock.json ./
RUN npm ci --omit=dev --no-audit --no-fund && npm cache clean --force

COPY bin ./bin
COPY src ./src
COPY config.yaml LICENSE ./

# Only the data directory is writable for the process: the SQLite store and the generated secret beside it.
RUN mkdir data && chown node:node data
VOLUME ["/app/data"]
USER node

# Inside a container 127.0.0.1 is unreachable from outside; config.yaml takes its `listen.host` from here, and so should
# one that is mounted over it. The admin listener stays on 127.0.0.1 unless the configuration says otherwise.
ENV HOST=0.0.0.0
EXPOSE 8080

HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 \
  CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.PORT || 8080}/health`, { signal: AbortSignal.timeout(4000) }).then((answer) => process.exit(answer.ok ? 0 : 1), () => process.exit(1))"]

# Exec form: signals reach Node, and SIGTERM drains. Give the container longer to stop than `drain.timeout`.
STOPSIGNAL SIGTERM
ENTRYPOINT ["node", "src/main.ts"]
CMD ["serve"]
