// The list of clients that the comparison knows. A new client is one line here.
import type { ComparedClient } from '../types.ts';
import { codexClients } from './codex.ts';
import { curl } from './curl.ts';
import { goClients } from './go.ts';
import { javaClients } from './java.ts';
import { nodeClients } from './node.ts';
import { pythonClients } from './python.ts';

export const CLIENTS: readonly ComparedClient[] = [
  ...nodeClients,
  ...pythonClients,
  ...goClients,
  ...javaClients,
  curl,
  ...codexClients,
];
