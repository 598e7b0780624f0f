{{/* The variables that decode variables.request: base64 of PEM, which is base64 of DER. */}}
{{- define "certificateRequest" -}}
# One with an RSA key of 8192 bits has about 4,400.
- name: small
  expression: size(variables.request) <= 8192
- name: sextets
  expression: "'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'"
# Those of PEM and of names, by their number in ASCII.
- name: characters
  expression: >-
    ('??????????\n????????????????????? ??????????+?-./0123456789:??=???ABCDEFGHIJKLMNOPQRSTUVWXYZ??????' +
    'abcdefghijklmnopqrstuvwxyz').split('')
# What is read as base64 elsewhere may have line breaks, here it may not.
- name: pem
  expression: >-
    !variables.small ||
    !variables.request.matches('^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$') ? '' :
    variables.request.replace('=', 'A').findAll('.{4}').map(g, g.split('').map(c, variables.sextets.indexOf(c)))
    .map(s, [s[0] * 4 + s[1] / 16, s[1] % 16 * 16 + s[2] / 4, s[2] % 4 * 64 + s[3]])
    .map(b, b.map(n, variables.characters[?n].orValue('?')).join('')).join('')
    .substring(0, size(variables.request) / 4 * 3 - size(variables.request) + size(variables.request.replace('=', '')))
# One block without headers. A reader of PEM skips what it cannot read, up to the next block.
- name: block
  expression: >-
    variables.pem.matches('^-----BEGIN CERTIFICATE REQUEST-----\n([A-Za-z0-9+/]{64}\n){2,}[A-Za-z0-9+/]{1,64}={0,2}\n' +
    '-----END CERTIFICATE REQUEST-----\n?$')
# Its bytes in decimals, "" unless it is such a block.
- name: bytes
  expression: >-
    !variables.block ? '' : variables.pem.split('\n').filter(line, !line.startsWith('-')).join('').replace('=', 'A')
    .findAll('.{4}').map(g, g.split('').map(c, variables.sextets.indexOf(c)))
    .map(s, [s[0] * 4 + s[1] / 16, s[1] % 16 * 16 + s[2] / 4, s[2] % 4 * 64 + s[3]])
    .map(b, b.map(n, string(n)).join(' ')).join(' ')
{{- end -}}
