// The list of servers that the comparison knows. A new server is one line here.
import type { ComparedServer } from '../types.ts';
import { aimock } from './aimock.ts';
import { llama } from './llama.ts';

export const SERVERS: readonly ComparedServer[] = [aimock, llama];
