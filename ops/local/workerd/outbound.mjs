// What a Worker's own `fetch` goes through: the public network alone, as on the platform, whatever a name resolves to.
// The origins in TRUSTED are whoever starts the edge's own choice, and may lie anywhere.
export default {
  fetch(request, env) {
    return env.TRUSTED.includes(new URL(request.url).origin) ? fetch(request) : env.PUBLIC.fetch(request);
  },
};
