@node "%~dp0tollgate.js" serve %*
