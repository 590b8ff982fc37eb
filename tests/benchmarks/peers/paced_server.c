/*
 * paced_server.c - a cheap, exactly paced, OpenAI-style streaming server.
 *
 * Purpose: a stand-in for an LLM engine when a *client* (load generator) is under test.  One thread, epoll,
 * keep-alive HTTP/1.1.  Every streamed reply has a known schedule:
 *
 *     first content chunk at   t_recv + TTFT
 *     content chunk k   at     t_recv + TTFT + k * ITL        (k = 0 .. N-1, an absolute grid: no drift)
 *
 * and the server can log what it really did (CLOCK_MONOTONIC ns: request fully read, each chunk's write() time),
 * so that a client's reported TTFT/ITL can be compared with the truth on the same clock.
 *
 *   gcc -O2 -Wall -Wextra -o paced_server paced_server.c
 *   ./paced_server --port 18900 --ttft-ms 50 --itl-ms 5 --log truth.bin
 *
 * Endpoints: POST /v1/chat/completions, POST /v1/completions, GET /v1/models, GET /health, GET /metrics.
 *
 * Per request, from the top level of the JSON body (anything absent falls back to the flag):
 *     max_tokens | max_completion_tokens   N, the number of content tokens
 *     stream                               true: SSE, chunked transfer encoding; false: one JSON document
 *     stream_options.include_usage         a usage chunk before [DONE]
 *     ttft_ms, itl_ms                      (not OpenAI's) pacing for this request only
 * Header x-request-id, if sent, is kept in the log (first 47 bytes); otherwise the id is "#<counter>".
 *
 * Flags (defaults in brackets):
 *     --host A [127.0.0.1]   --port P [18900]
 *     --ttft-ms X [0]        --itl-ms X [0]     0 = as fast as possible      --tokens N [16] when the body has none
 *     --role none|first|early [none]   role-only chunk: none; just before the first content chunk (as vLLM does);
 *                                      or at once on receipt, before prefill (some proxies and engines do)
 *     --finish last|separate [last]    finish_reason in the last content chunk, or in an empty chunk of its own
 *     --tail-ms X [0]        delay between the last content chunk and the closing usage/[DONE] chunks
 *     --tpc K [1]            tokens carried by one chunk (imitates speculative decoding / multi-token chunks)
 *     --coalesce K [1]       with ITL 0: content chunks joined in one write() (1 = one write() each, as engines do)
 *     --usage ask|always|never [ask]
 *     --model NAME [paced]
 *     --log FILE             ground truth, binary, see struct rec_hdr; read by server_log.py
 *     --spin-us U [0]        busy-wait the last U microseconds before a due time (steadier pacing, burns CPU)
 * SIGINT/SIGTERM: flush the log, print one JSON line of statistics to stderr, exit 0.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_HEADER   (64 * 1024)
#define MAX_BODY     (64 * 1024 * 1024)
#define MAX_EVENTS   512
#define CHUNK_MAX    1024          /* upper bound of one SSE event with framing, tpc words excluded */
#define BURST        32            /* ITL 0: content chunks per turn before other streams get theirs */

enum role_mode { ROLE_NONE, ROLE_FIRST, ROLE_EARLY };
enum usage_mode { USAGE_ASK, USAGE_ALWAYS, USAGE_NEVER };

static struct {
    const char *host, *model, *log;
    int port, tokens, tpc, coalesce;
    double ttft_ms, itl_ms, tail_ms;
    enum role_mode role;
    enum usage_mode usage;
    bool finish_separate;
    int64_t spin_ns;
} cfg = { "127.0.0.1", "paced", NULL, 18900, 16, 1, 1, 0, 0, 0, ROLE_NONE, USAGE_ASK, false, 0 };

/* One log record = this header followed by n int64 write() times (monotonic ns).  Little-endian, packed by hand. */
struct rec_hdr {
    uint32_t magic;       /* 0x31435250 "PRC1" */
    uint32_t n;           /* write times that follow: all SSE writes of the reply, in order */
    uint64_t seq;         /* request counter, from 1 */
    int64_t  t_recv;      /* request fully read */
    int64_t  t_end;       /* last byte handed to the kernel, or the abort */
    uint32_t n_content;   /* of the n, writes of content (= content chunks unless --coalesce joins them) ... */
    uint32_t first_content; /* ... and the index of the first of them */
    uint32_t n_tokens;    /* tokens asked for */
    uint32_t flags;       /* 1 aborted by the client, 2 not streamed, 4 some write() was blocked, 8 chat */
    int32_t  fd;          /* connection, to see reuse */
    uint32_t body_len;    /* request body bytes */
    char     id[48];
};

/* Words with a leading space; a byte-level BPE trained on them gives one token for each. */
static const char *const WORDS[64] = {
    " alpha"," bravo"," charlie"," delta"," echo"," foxtrot"," golf"," hotel"," india"," juliet"," kilo"," lima",
    " mike"," november"," oscar"," papa"," quebec"," romeo"," sierra"," tango"," uniform"," victor"," whiskey",
    " xray"," yankee"," zulu"," apple"," banana"," cherry"," grape"," lemon"," mango"," melon"," olive"," orange",
    " peach"," pear"," plum"," river"," mountain"," ocean"," forest"," desert"," island"," valley"," meadow",
    " bridge"," castle"," garden"," harbor"," market"," museum"," palace"," school"," station"," street"," temple",
    " theater"," tower"," village"," window"," winter"," summer"," spring" };

struct conn {
    int fd;
    int heap_pos;                 /* index in the timer heap, -1 when idle */
    int64_t due;                  /* next action's due time */
    char *in; size_t in_len, in_cap;
    char *out; size_t out_len, out_off, out_cap;   /* bytes the socket would not take yet */
    bool want_out, busy, close_after, chat, usage, stream, role_done, finishing;
    int64_t itl, tail;
    uint32_t tokens, sent_tokens, chunks_total, chunks_sent;
    char idtxt[24];               /* id inside the JSON */
    struct rec_hdr rec;
    int64_t *times; uint32_t times_cap;
};

static int ep;
static struct conn **heap; static int heap_n, heap_cap;
static volatile sig_atomic_t stop_flag;
static FILE *logf_;
static uint64_t seq_no;
static struct { uint64_t conns, requests, done, aborted, chunks, tokens, blocked, http_errors; int active, peak_active;
                int64_t late_max; uint64_t late_hist[40]; } st;

static inline int64_t now_ns(void)
{
    struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void die(const char *m) { perror(m); exit(2); }
static void *xrealloc(void *p, size_t n) { p = realloc(p, n); if (!p) die("realloc"); return p; }

/* ---- timer heap: binary min-heap on conn->due, each connection at most once ---------------------------------- */
static void heap_set(int i, struct conn *c) { heap[i] = c; c->heap_pos = i; }
static void heap_up(int i)
{
    struct conn *c = heap[i];
    while (i > 0 && heap[(i - 1) / 2]->due > c->due) { heap_set(i, heap[(i - 1) / 2]); i = (i - 1) / 2; }
    heap_set(i, c);
}
static void heap_down(int i)
{
    struct conn *c = heap[i];
    for (;;) {
        int k = 2 * i + 1;
        if (k >= heap_n) break;
        if (k + 1 < heap_n && heap[k + 1]->due < heap[k]->due) k++;
        if (heap[k]->due >= c->due) break;
        heap_set(i, heap[k]); i = k;
    }
    heap_set(i, c);
}
static void heap_del(struct conn *c)
{
    int i = c->heap_pos;
    if (i < 0) return;
    struct conn *l = heap[--heap_n];
    c->heap_pos = -1;
    if (l == c) return;
    heap_set(i, l); heap_down(i); heap_up(l->heap_pos);
}
static void heap_put(struct conn *c, int64_t due)
{
    c->due = due;
    if (c->heap_pos >= 0) { heap_down(c->heap_pos); heap_up(c->heap_pos); return; }
    if (heap_n == heap_cap) { heap_cap = heap_cap ? heap_cap * 2 : 1024; heap = xrealloc(heap, heap_cap * sizeof *heap); }
    heap[heap_n] = c; c->heap_pos = heap_n; heap_up(heap_n++);
}

/* ---- output --------------------------------------------------------------------------------------------------- */
static void set_out(struct conn *c, bool on)
{
    if (c->want_out == on) return;
    struct epoll_event e = { .events = EPOLLIN | EPOLLRDHUP | (on ? EPOLLOUT : 0), .data.ptr = c };
    epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
    c->want_out = on;
}
/* false: the connection is dead */
static bool send_bytes(struct conn *c, const char *p, size_t n)
{
    if (c->out_len == c->out_off) {
        c->out_len = c->out_off = 0;
        ssize_t w = send(c->fd, p, n, MSG_NOSIGNAL);
        if (w < 0) { if (errno != EAGAIN && errno != EINTR) return false; w = 0; }
        p += w; n -= w;
        if (!n) return true;
        st.blocked++; c->rec.flags |= 4;
    }
    if (c->out_len + n > c->out_cap) { c->out_cap = (c->out_len + n) * 2; c->out = xrealloc(c->out, c->out_cap); }
    memcpy(c->out + c->out_len, p, n); c->out_len += n;
    set_out(c, true);
    return true;
}
static bool flush_out(struct conn *c)
{
    ssize_t w = send(c->fd, c->out + c->out_off, c->out_len - c->out_off, MSG_NOSIGNAL);
    if (w < 0) return errno == EAGAIN || errno == EINTR;
    c->out_off += w;
    if (c->out_off == c->out_len) { c->out_len = c->out_off = 0; set_out(c, false); }
    return true;
}

/* ---- log ------------------------------------------------------------------------------------------------------- */
static inline void stamp(struct conn *c, int64_t t)
{
    if (c->rec.n == c->times_cap) { c->times_cap = c->times_cap ? c->times_cap * 2 : 64;
                                    c->times = xrealloc(c->times, c->times_cap * sizeof *c->times); }
    c->times[c->rec.n++] = t;
}
static void log_record(struct conn *c, bool aborted)
{
    if (aborted) { c->rec.flags |= 1; st.aborted++; } else st.done++;
    c->rec.t_end = now_ns();
    if (logf_) { fwrite(&c->rec, sizeof c->rec, 1, logf_); fwrite(c->times, sizeof *c->times, c->rec.n, logf_); }
    st.active--; c->busy = false;
}
static void note_late(int64_t d)
{
    if (d < 0) d = 0;
    if (d > st.late_max) st.late_max = d;
    int b = 0; while (d > 1 && b < 39) { d >>= 1; b++; }
    st.late_hist[b]++;
}

/* ---- replies --------------------------------------------------------------------------------------------------- */
static void conn_close(struct conn *c)
{
    if (c->busy) log_record(c, true);
    heap_del(c);
    close(c->fd);
    free(c->in); free(c->out); free(c->times);
    c->fd = -1; free(c);
}
static bool reply_doc(struct conn *c, int code, const char *reason, const char *type, const char *body, size_t n)
{
    char h[256];
    int k = snprintf(h, sizeof h, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s\r\n", code, reason, type,
                     n, c->close_after ? "Connection: close\r\n" : "");
    char *b = malloc(k + n); if (!b) die("malloc");
    memcpy(b, h, k); memcpy(b + k, body, n);
    bool ok = send_bytes(c, b, k + n);
    free(b);
    if (code >= 400) st.http_errors++;
    return ok;
}
/* wraps an SSE payload in "data: ...\n\n" and in an HTTP chunk, at p; returns the bytes written */
static size_t frame(char *p, const char *json, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    size_t len = n + 8, k = 0;                      /* "data: " + json + "\n\n" */
    char d[8]; int i = 0; size_t v = len; do { d[i++] = hex[v & 15]; v >>= 4; } while (v);
    while (i) p[k++] = d[--i];
    memcpy(p + k, "\r\ndata: ", 8); k += 8;
    memcpy(p + k, json, n); k += n;
    memcpy(p + k, "\n\n\r\n", 4); return k + 4;
}
static inline size_t cat(char *p, size_t k, const char *s) { size_t n = strlen(s); memcpy(p + k, s, n); return k + n; }

enum kind { K_ROLE, K_CONTENT, K_FINISH, K_USAGE };
/* one SSE event of the given kind; K_CONTENT carries n tokens starting at number tok; last adds finish_reason */
static size_t event(struct conn *c, char *out, enum kind kind, uint32_t tok, uint32_t n, bool last)
{
    static char head_chat[256], head_cmpl[256]; static size_t nc, np; static char *j; static size_t jcap;
    if (!nc) {
        nc = snprintf(head_chat, sizeof head_chat, "\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"%s\",\"choices\":[", cfg.model);
        np = snprintf(head_cmpl, sizeof head_cmpl, "\",\"object\":\"text_completion\",\"created\":1700000000,\"model\":\"%s\",\"choices\":[", cfg.model);
    }
    if (jcap < CHUNK_MAX + 16 * (size_t)n) { jcap = CHUNK_MAX + 16 * (size_t)n; j = xrealloc(j, jcap); }
    size_t k = cat(j, 0, "{\"id\":\""); k = cat(j, k, c->idtxt);
    if (c->chat) { memcpy(j + k, head_chat, nc); k += nc; } else { memcpy(j + k, head_cmpl, np); k += np; }
    if (kind == K_USAGE) {
        k += sprintf(j + k, "],\"usage\":{\"prompt_tokens\":%u,\"total_tokens\":%u,\"completion_tokens\":%u}}",
                     c->rec.body_len / 6 + 1, c->rec.body_len / 6 + 1 + c->tokens, c->tokens);
    } else {
        k = cat(j, k, c->chat ? "{\"index\":0,\"delta\":{" : "{\"index\":0,\"text\":\"");
        if (c->chat && kind == K_ROLE) k = cat(j, k, "\"role\":\"assistant\",\"content\":\"");
        else if (c->chat && kind == K_CONTENT) k = cat(j, k, "\"content\":\"");
        if (kind == K_CONTENT) for (uint32_t i = 0; i < n; i++) k = cat(j, k, WORDS[(tok + i) & 63]);
        if (!c->chat || kind != K_FINISH) k = cat(j, k, "\"");
        if (c->chat) k = cat(j, k, "}");
        k = cat(j, k, ",\"logprobs\":null,\"finish_reason\":");
        k = cat(j, k, last ? "\"length\"}]}" : "null}]}");
    }
    return frame(out, j, k);
}
static bool write_event(struct conn *c, const char *b, size_t n)
{
    stamp(c, now_ns()); st.chunks++;
    return send_bytes(c, b, n);
}

static bool try_parse(struct conn *c);

/* One turn of a due stream.  false: the connection was closed. */
static bool stream_turn(struct conn *c)
{
    static char *b; static size_t cap;
    size_t need = (size_t)(cfg.coalesce + 4) * (CHUNK_MAX + 16 * (size_t)cfg.tpc) + 512;
    if (cap < need) { cap = need; b = xrealloc(b, cap); }
    note_late(now_ns() - c->due);

    if (!c->stream) {                                      /* one document after the whole generation time */
        char *d = malloc(1024 + 16 * (size_t)c->tokens); if (!d) die("malloc");
        size_t k = sprintf(d, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":1700000000,\"model\":\"%s\",\"choices\":[{\"index\":0,%s",
                           c->idtxt, c->chat ? "chat.completion" : "text_completion", cfg.model,
                           c->chat ? "\"message\":{\"role\":\"assistant\",\"content\":\"" : "\"text\":\"");
        for (uint32_t i = 0; i < c->tokens; i++) k = cat(d, k, WORDS[i & 63]);
        k += sprintf(d + k, "\"%s,\"logprobs\":null,\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":%u,\"total_tokens\":%u,\"completion_tokens\":%u}}",
                     c->chat ? "}" : "", c->rec.body_len / 6 + 1, c->rec.body_len / 6 + 1 + c->tokens, c->tokens);
        stamp(c, now_ns()); st.chunks++; st.tokens += c->tokens;
        bool ok = reply_doc(c, 200, "OK", "application/json", d, k);
        free(d);
        if (!ok) { conn_close(c); return false; }
        goto finished;
    }
    if (cfg.role == ROLE_FIRST && !c->role_done) {
        c->role_done = true;
        size_t n = event(c, b, K_ROLE, 0, 0, false);
        if (!write_event(c, b, n)) { conn_close(c); return false; }
    }
    for (int turn = 0; c->chunks_sent < c->chunks_total && turn < BURST; turn++) {
        size_t n = 0; int m = c->itl ? 1 : cfg.coalesce;
        if (!c->chunks_sent) c->rec.first_content = c->rec.n;
        for (; m && c->chunks_sent < c->chunks_total; m--) {
            uint32_t t = c->tokens - c->sent_tokens; if (t > (uint32_t)cfg.tpc) t = cfg.tpc;
            c->chunks_sent++;
            n += event(c, b + n, K_CONTENT, c->sent_tokens, t, c->chunks_sent == c->chunks_total && !cfg.finish_separate);
            c->sent_tokens += t; st.tokens += t;
        }
        c->rec.n_content++;
        if (!write_event(c, b, n)) { conn_close(c); return false; }
        if (c->itl) break;
    }
    if (c->chunks_sent < c->chunks_total) { heap_put(c, c->itl ? c->due + c->itl : c->due); return true; }
    if (c->tail && !c->finishing) { c->finishing = true; heap_put(c, c->due + c->tail); return true; }
    {
        size_t n = 0;
        if (cfg.finish_separate) n += event(c, b + n, K_FINISH, 0, 0, true);
        if (c->usage) n += event(c, b + n, K_USAGE, 0, 0, false);
        n += frame(b + n, "[DONE]", 6);
        n = cat(b, n, "0\r\n\r\n");
        if (!write_event(c, b, n)) { conn_close(c); return false; }
    }
finished:
    heap_del(c);
    log_record(c, false);
    if (c->close_after && c->out_len == c->out_off) { conn_close(c); return false; }
    return try_parse(c);                                    /* a pipelined request may be waiting */
}

/* ---- request parsing ------------------------------------------------------------------------------------------- */
static const char *skip_ws(const char *p, const char *e) { while (p < e && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')) p++; return p; }
static const char *skip_str(const char *p, const char *e)   /* p at the opening quote; returns past the closing one */
{
    for (p++; p < e && *p != '"'; p++) if (*p == '\\') p++;
    return p < e ? p + 1 : e;
}
static const char *skip_val(const char *p, const char *e)
{
    if (p >= e) return e;
    if (*p == '"') return skip_str(p, e);
    if (*p == '{' || *p == '[') {
        int d = 0;
        while (p < e) {
            if (*p == '"') { p = skip_str(p, e); continue; }
            if (*p == '{' || *p == '[') d++;
            else if (*p == '}' || *p == ']') { if (--d == 0) return p + 1; }
            p++;
        }
        return e;
    }
    while (p < e && *p != ',' && *p != '}' && *p != ']') p++;
    return p;
}
/* value of a key at the top level of the object [p, e); NULL when absent */
static const char *json_get(const char *p, const char *e, const char *key)
{
    size_t kl = strlen(key);
    p = skip_ws(p, e);
    if (p >= e || *p != '{') return NULL;
    for (p++;;) {
        p = skip_ws(p, e);
        if (p >= e || *p != '"') return NULL;
        const char *k = p + 1; p = skip_str(p, e);
        bool hit = (size_t)(p - k - 1) == kl && !memcmp(k, key, kl);
        p = skip_ws(p, e); if (p >= e || *p != ':') return NULL;
        p = skip_ws(p + 1, e);
        if (hit) return p;
        p = skip_ws(skip_val(p, e), e);
        if (p >= e || *p != ',') return NULL;
        p++;
    }
}
static bool json_num(const char *b, const char *e, const char *key, double *v)
{
    const char *p = json_get(b, e, key);
    if (!p || !((*p >= '0' && *p <= '9') || *p == '-')) return false;
    char t[32]; size_t n = 0; while (p < e && n < 31 && strchr("0123456789+-.eE", *p)) t[n++] = *p++;
    t[n] = 0; *v = atof(t); return true;
}
static bool json_true(const char *b, const char *e, const char *key)
{
    const char *p = json_get(b, e, key); return p && e - p >= 4 && !memcmp(p, "true", 4);
}

static bool start_generation(struct conn *c, const char *body, size_t n, bool chat, const char *xid, size_t xid_n, int64_t t)
{
    const char *e = body + n; double v, ttft = cfg.ttft_ms, itl = cfg.itl_ms;
    memset(&c->rec, 0, sizeof c->rec);
    c->rec.magic = 0x31435250; c->rec.seq = ++seq_no; c->rec.t_recv = t; c->rec.body_len = n; c->rec.fd = c->fd;
    c->tokens = cfg.tokens;
    if (json_num(body, e, "max_completion_tokens", &v) || json_num(body, e, "max_tokens", &v)) c->tokens = v < 1 ? 1 : (uint32_t)v;
    if (json_num(body, e, "ttft_ms", &v)) ttft = v;
    if (json_num(body, e, "itl_ms", &v)) itl = v;
    c->stream = json_true(body, e, "stream");
    c->usage = cfg.usage == USAGE_ALWAYS;
    if (cfg.usage == USAGE_ASK) { const char *so = json_get(body, e, "stream_options"); c->usage = so && json_true(so, e, "include_usage"); }
    c->chat = chat; c->itl = itl * 1e6; c->tail = cfg.tail_ms * 1e6;
    c->sent_tokens = c->chunks_sent = 0; c->chunks_total = (c->tokens + cfg.tpc - 1) / cfg.tpc;
    c->role_done = c->finishing = false;
    c->rec.n_tokens = c->tokens; c->rec.flags = (c->stream ? 0 : 2) | (chat ? 8 : 0);
    if (xid_n) { if (xid_n > 47) xid_n = 47; memcpy(c->rec.id, xid, xid_n); }
    else snprintf(c->rec.id, sizeof c->rec.id, "#%llu", (unsigned long long)seq_no);
    snprintf(c->idtxt, sizeof c->idtxt, "cmpl-%012llu", (unsigned long long)seq_no);
    c->busy = true; st.requests++;
    if (++st.active > st.peak_active) st.peak_active = st.active;
    int64_t due = t + (int64_t)(ttft * 1e6);
    if (!c->stream) due += (int64_t)(c->chunks_total - 1) * c->itl;
    else {
        static const char h[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";
        if (!send_bytes(c, h, sizeof h - 1)) { conn_close(c); return false; }
        if (cfg.role == ROLE_EARLY) {
            char b[CHUNK_MAX]; c->role_done = true;
            size_t k = event(c, b, K_ROLE, 0, 0, false);
            if (!write_event(c, b, k)) { conn_close(c); return false; }
        }
    }
    heap_put(c, due);
    return true;
}

static const char *header(const char *h, const char *e, const char *name, size_t *n)   /* value of a header, trimmed */
{
    size_t nl = strlen(name);
    for (const char *p = h; p < e; ) {
        const char *q = memchr(p, '\n', e - p); if (!q) q = e;
        if ((size_t)(q - p) > nl && p[nl] == ':' && !strncasecmp(p, name, nl)) {
            const char *v = p + nl + 1; while (v < q && (*v == ' ' || *v == '\t')) v++;
            const char *z = q; while (z > v && (z[-1] == '\r' || z[-1] == ' ')) z--;
            *n = z - v; return v;
        }
        p = q + 1;
    }
    *n = 0; return NULL;
}

/* Handles what is complete in the input buffer.  false: the connection was closed. */
static bool try_parse(struct conn *c)
{
    while (!c->busy && c->in_len) {
        const char *end = memmem(c->in, c->in_len, "\r\n\r\n", 4);
        if (!end) { if (c->in_len > MAX_HEADER) { conn_close(c); return false; } return true; }
        size_t hl = end + 4 - c->in, n, bl = 0, tn; const char *v;
        const char *h = memchr(c->in, '\n', hl); h++;
        if ((v = header(h, end + 2, "content-length", &n))) bl = strtoul(v, NULL, 10);
        if (bl > MAX_BODY) { conn_close(c); return false; }
        v = header(h, end + 2, "connection", &n); c->close_after = v && n == 5 && !strncasecmp(v, "close", 5);
        if (header(h, end + 2, "transfer-encoding", &n)) {           /* no client under test sends chunked bodies */
            c->close_after = true; reply_doc(c, 411, "Length Required", "text/plain", "", 0); conn_close(c); return false;
        }
        if (c->in_len < hl + bl) {
            if (header(h, end + 2, "expect", &n) && c->in_len == hl && !send_bytes(c, "HTTP/1.1 100 Continue\r\n\r\n", 25)) { conn_close(c); return false; }
            if (c->in_cap < hl + bl + 1) { c->in_cap = hl + bl + 1; c->in = xrealloc(c->in, c->in_cap); }
            return true;
        }
        int64_t t = now_ns();
        const char *x = header(h, end + 2, "x-request-id", &tn);
        bool ok = true, post = !memcmp(c->in, "POST ", 5), get = !memcmp(c->in, "GET ", 4);
        const char *path = c->in + (post ? 5 : 4); size_t pl = strcspn(path, " ?\r\n");
#define IS(s) (pl == sizeof(s) - 1 && !memcmp(path, s, pl))
        if (post && IS("/v1/chat/completions")) ok = start_generation(c, c->in + hl, bl, true, x, tn, t);
        else if (post && IS("/v1/completions")) ok = start_generation(c, c->in + hl, bl, false, x, tn, t);
        else {
            char b[1024]; int k;
            if (get && IS("/v1/models")) {
                k = snprintf(b, sizeof b, "{\"object\":\"list\",\"data\":[{\"id\":\"%s\",\"object\":\"model\",\"created\":1700000000,\"owned_by\":\"paced\",\"max_model_len\":131072}]}", cfg.model);
                ok = reply_doc(c, 200, "OK", "application/json", b, k);
            } else if (get && (IS("/health") || IS("/ping"))) ok = reply_doc(c, 200, "OK", "application/json", "{}", 2);
            else if (get && IS("/metrics")) {
                k = snprintf(b, sizeof b, "# TYPE paced_requests_total counter\npaced_requests_total %llu\n# TYPE paced_active gauge\npaced_active %d\n",
                             (unsigned long long)st.requests, st.active);
                ok = reply_doc(c, 200, "OK", "text/plain; version=0.0.4", b, k);
            } else ok = reply_doc(c, 404, "Not Found", "application/json", "{\"error\":{\"message\":\"not found\"}}", 33);
            if (!ok || (c->close_after && c->out_len == c->out_off)) { conn_close(c); return false; }
        }
        if (!ok) return false;
        c->in_len -= hl + bl; memmove(c->in, c->in + hl + bl, c->in_len);
    }
    return true;
}

static void on_readable(struct conn *c)
{
    for (;;) {
        if (c->in_cap - c->in_len < 4096) { c->in_cap = c->in_cap ? c->in_cap * 2 : 8192; c->in = xrealloc(c->in, c->in_cap); }
        size_t room = c->in_cap - c->in_len;
        ssize_t r = recv(c->fd, c->in + c->in_len, room, 0);
        if (r == 0) { conn_close(c); return; }
        if (r < 0) { if (errno == EAGAIN || errno == EINTR) break; conn_close(c); return; }
        c->in_len += r;
        if ((size_t)r < room) break;
    }
    try_parse(c);
}

static void on_accept(int ls)
{
    for (int i = 0; i < 64; i++) {
        int fd = accept4(ls, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) return;
        int one = 1; setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct conn *c = calloc(1, sizeof *c); if (!c) die("calloc");
        c->fd = fd; c->heap_pos = -1; st.conns++;
        struct epoll_event e = { .events = EPOLLIN | EPOLLRDHUP, .data.ptr = c };
        if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e)) die("epoll_ctl");
    }
}

static void on_signal(int s) { (void)s; stop_flag = 1; }

static void print_stats(void)
{
    struct rusage u; getrusage(RUSAGE_SELF, &u);
    uint64_t tot = 0, acc = 0; for (int i = 0; i < 40; i++) tot += st.late_hist[i];
    double q50 = 0, q99 = 0;                               /* upper edges of power-of-two buckets */
    for (int i = 0; i < 40; i++) { acc += st.late_hist[i]; double up = (double)(2ULL << i) / 1e3;
        if (!q50 && tot && acc * 2 >= tot) q50 = up;
        if (!q99 && tot && acc * 100 >= tot * 99) q99 = up; }
    fprintf(stderr, "{\"conns\":%llu,\"requests\":%llu,\"done\":%llu,\"aborted\":%llu,\"chunks\":%llu,\"tokens\":%llu,\"blocked_writes\":%llu,"
            "\"http_errors\":%llu,\"peak_active\":%d,\"late_us_p50_le\":%.0f,\"late_us_p99_le\":%.0f,\"late_us_max\":%.0f,\"cpu_user_s\":%.3f,\"cpu_sys_s\":%.3f,\"maxrss_kb\":%ld}\n",
            (unsigned long long)st.conns, (unsigned long long)st.requests, (unsigned long long)st.done, (unsigned long long)st.aborted,
            (unsigned long long)st.chunks, (unsigned long long)st.tokens, (unsigned long long)st.blocked, (unsigned long long)st.http_errors,
            st.peak_active, q50, q99, st.late_max / 1e3, u.ru_utime.tv_sec + u.ru_utime.tv_usec / 1e6, u.ru_stime.tv_sec + u.ru_stime.tv_usec / 1e6, u.ru_maxrss);
}

int main(int argc, char **argv)
{
    enum { O_HOST = 1, O_PORT, O_TTFT, O_ITL, O_TOK, O_ROLE, O_FIN, O_TAIL, O_TPC, O_COAL, O_USAGE, O_MODEL, O_LOG, O_SPIN };
    static const struct option opt[] = { {"host",1,0,O_HOST},{"port",1,0,O_PORT},{"ttft-ms",1,0,O_TTFT},{"itl-ms",1,0,O_ITL},{"tokens",1,0,O_TOK},
        {"role",1,0,O_ROLE},{"finish",1,0,O_FIN},{"tail-ms",1,0,O_TAIL},{"tpc",1,0,O_TPC},{"coalesce",1,0,O_COAL},{"usage",1,0,O_USAGE},
        {"model",1,0,O_MODEL},{"log",1,0,O_LOG},{"spin-us",1,0,O_SPIN},{0,0,0,0} };
    for (int o; (o = getopt_long(argc, argv, "", opt, NULL)) != -1; ) switch (o) {
        case O_HOST: cfg.host = optarg; break;           case O_PORT: cfg.port = atoi(optarg); break;
        case O_TTFT: cfg.ttft_ms = atof(optarg); break;  case O_ITL: cfg.itl_ms = atof(optarg); break;
        case O_TOK: cfg.tokens = atoi(optarg); break;    case O_TAIL: cfg.tail_ms = atof(optarg); break;
        case O_TPC: cfg.tpc = atoi(optarg); break;       case O_COAL: cfg.coalesce = atoi(optarg); break;
        case O_ROLE: cfg.role = !strcmp(optarg, "early") ? ROLE_EARLY : !strcmp(optarg, "first") ? ROLE_FIRST : ROLE_NONE; break;
        case O_FIN: cfg.finish_separate = !strcmp(optarg, "separate"); break;
        case O_USAGE: cfg.usage = !strcmp(optarg, "always") ? USAGE_ALWAYS : !strcmp(optarg, "never") ? USAGE_NEVER : USAGE_ASK; break;
        case O_MODEL: cfg.model = optarg; break;         case O_LOG: cfg.log = optarg; break;
        case O_SPIN: cfg.spin_ns = atoll(optarg) * 1000; break;
        default: return 2;
    }
    if (cfg.tpc < 1) cfg.tpc = 1;
    if (cfg.coalesce < 1) cfg.coalesce = 1;
    if (cfg.log && !(logf_ = fopen(cfg.log, "wb"))) die(cfg.log);
    if (logf_) setvbuf(logf_, NULL, _IOFBF, 4 << 20);
    struct rlimit rl; getrlimit(RLIMIT_NOFILE, &rl); rl.rlim_cur = rl.rlim_max; setrlimit(RLIMIT_NOFILE, &rl);
    prctl(PR_SET_TIMERSLACK, 1);
    signal(SIGPIPE, SIG_IGN); signal(SIGINT, on_signal); signal(SIGTERM, on_signal);

    int ls = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1; if (ls < 0) die("socket");
    setsockopt(ls, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(cfg.port) };
    if (inet_pton(AF_INET, cfg.host, &a.sin_addr) != 1) { fprintf(stderr, "bad host\n"); return 2; }
    if (bind(ls, (struct sockaddr *)&a, sizeof a)) die("bind");
    if (listen(ls, 8192)) die("listen");
    if ((ep = epoll_create1(EPOLL_CLOEXEC)) < 0) die("epoll_create1");
    struct epoll_event e = { .events = EPOLLIN, .data.ptr = NULL }, ev[MAX_EVENTS];
    epoll_ctl(ep, EPOLL_CTL_ADD, ls, &e);

    while (!stop_flag) {
        int64_t t = now_ns(); int done = 0;
        while (heap_n && heap[0]->due <= t && done++ < 256) stream_turn(heap[0]);
        int64_t wait = -1;
        if (heap_n) {
            wait = heap[0]->due - now_ns() - cfg.spin_ns;
            if (wait < 0) wait = 0;
        }
        struct timespec ts = { wait / 1000000000, wait % 1000000000 };
        int n = epoll_pwait2(ep, ev, MAX_EVENTS, wait < 0 ? NULL : &ts, NULL);
        for (int i = 0; i < n; i++) {
            struct conn *c = ev[i].data.ptr;
            if (!c) { on_accept(ls); continue; }
            if (ev[i].events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) { conn_close(c); continue; }
            if (ev[i].events & EPOLLOUT) {
                if (!flush_out(c)) { conn_close(c); continue; }
                if (c->close_after && !c->busy && c->out_len == c->out_off) { conn_close(c); continue; }
            }
            if (ev[i].events & EPOLLIN) on_readable(c);
        }
    }
    if (logf_) fclose(logf_);
    print_stats();
    return 0;
}
