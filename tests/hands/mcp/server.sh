# An MCP server for images without Python: bash alone, and the protocol as it was.
tools='[{"name":"whoami","inputSchema":{"type":"object"}},{"name":"sh","inputSchema":{"type":"object","properties":{"line":{"type":"string"}},"required":["line"]}}]'
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
said() { answer "{\"content\":[{\"type\":\"text\",\"text\":\"$1\"}]}"; }
while IFS= read -r line; do
  id=$(sed -n 's/.*"id":\([0-9]*\).*/\1/p' <<<"$line")
  case $line in
  *'"initialize"'*) answer '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"bash","version":"1"}}' ;;
  *'"tools/list"'*) answer "{\"tools\":$tools}" ;;
  *'"tools/call"'*'"sh"'*) said "$(eval "$(sed -n 's/.*"line":"\([^"]*\)".*/\1/p' <<<"$line")" | tr '\n\t' '  ')" ;;
  *'"tools/call"'*) said "$(whoami)" ;;
  *) [ -n "$id" ] && printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}\n' "$id" ;;
  esac
done
