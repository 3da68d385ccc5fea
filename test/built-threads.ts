// Setup of the system tests: threads of the usage outbox are used again. A setup file runs once a test file, what it imports once a process.
import './helpers/outbox-threads.ts';
