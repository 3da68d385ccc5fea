// A gateway that serves one request and prints which packages were loaded for it. Arguments: the configuration file. The
// environment is passed on.
import { registerHooks } from 'node:module';

const packages = new Set<string>();
registerHooks({
  resolve(specifier, context, next) {
    const result = next(specifier, context);
    const name = /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(result.url)?.[1];
    if (name !== undefined) packages.add(name);
    return result;
  },
});

const { startApp } = await import('../../../src/app.ts');
const [, , configFile = ''] = process.argv;
const app = await startApp({ configFile, env: process.env });
const issued = await app.issuer.issue({ tier: 'Pro' });
const response = await fetch(`${app.url}/v1/chat/completions`, {
  method: 'POST',
  headers: { authorization: `Bearer ${issued.key.reveal()}`, 'content-type': 'application/json' },
  body: JSON.stringify({ model: 'test-model', messages: [{ role: 'user', content: 'x' }] }),
});
await response.arrayBuffer();
await Promise.all([app.close(), app.close()]);
process.stderr.write(`${JSON.stringify({ status: response.status, packages: [...packages].sort() })}\n`);
