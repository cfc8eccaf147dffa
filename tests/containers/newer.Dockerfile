# expert-lite with a newer revision of one model.
ARG BASE
FROM ${BASE}
USER 0:0
RUN sed -i '/"lite\/textrank"/,/}/ s/"revision": "[^"]*"/"revision": "newer"/' /app/experts/lite/models.json \
    && grep -q '"revision": "newer"' /app/experts/lite/models.json
USER 65532:65532
