// The list of clients that the comparison knows. A new client is one line here.
import type { ComparedClient } from '../types.ts';
import { nodeClients } from './node.ts';

export const CLIENTS: readonly ComparedClient[] = [...nodeClients];
