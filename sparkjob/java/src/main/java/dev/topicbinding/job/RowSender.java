package dev.topicbinding.job;

import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import org.apache.spark.sql.ForeachWriter;
import org.apache.spark.sql.Row;

/**
 * The sink of real-time mode: sends rows to the driver's table log over a socket, a few milliseconds after they came.
 *
 * <p>Spark opens one for every task and every batch. Rows are gathered for {@link #GATHER_MILLIS} and sent as columns (see
 * {@link ColumnBuffer}; the other end is {@code ingest.py}). {@code close} waits until the log has taken everything: a batch is
 * committed only after that, so a row that was committed is in the log.
 */
public final class RowSender extends ForeachWriter<Row> {
  private static final long serialVersionUID = 1L;
  /** Long enough to send hundreds of rows at once under load, short enough to be unseen. */
  private static final int GATHER_MILLIS = 3;
  /** A full buffer is sent at once, whatever the clock says. */
  private static final int FULL_ROWS = 8192;
  private static final int CONNECT_MILLIS = 5000;
  private static final int ANSWER_MILLIS = 60000;
  private static final int SOCKET_BUFFER = 1 << 20;

  private final String host;
  private final int port;
  private final String token;

  private transient Socket socket;
  private transient OutputStream out;
  private transient ColumnBuffer rows;
  private transient Thread flusher;
  private transient boolean closed;
  private transient IOException trouble;

  public RowSender(String host, int port, String token) {
    this.host = host;
    this.port = port;
    this.token = token;
  }

  @Override
  public boolean open(long partitionId, long epochId) {
    try {
      socket = new Socket();
      socket.connect(new InetSocketAddress(host, port), CONNECT_MILLIS);
      socket.setTcpNoDelay(true);
      socket.setSoTimeout(ANSWER_MILLIS);
      out = new BufferedOutputStream(socket.getOutputStream(), SOCKET_BUFFER);
      out.write(token.getBytes(StandardCharsets.US_ASCII));
      out.flush();
    } catch (IOException e) {
      throw new IllegalStateException("the table log cannot be reached at " + host + ":" + port, e);
    }
    closed = false;
    trouble = null;
    rows = null;
    flusher = new Thread(this::flushWhileOpen, "topicbinding-sender-" + partitionId);
    flusher.setDaemon(true);
    flusher.start();
    return true;
  }

  @Override
  public synchronized void process(Row row) {
    check();
    if (rows == null) {
      rows = new ColumnBuffer(row.schema());
    }
    rows.add(row);
    if (rows.size() == 1) {
      notifyAll();
    } else if (rows.size() >= FULL_ROWS) {
      send();
      check();
    }
  }

  @Override
  public void close(Throwable error) {
    synchronized (this) {
      if (closed || socket == null) {
        return;
      }
      closed = true;
      notifyAll();
      if (error == null) {
        send();
      }
    }
    try {
      if (error == null) {
        check();
        // An empty frame says "that was all"; the answer says "taken".
        out.write(new byte[] {0, 0, 0, 0});
        out.flush();
        new DataInputStream(socket.getInputStream()).readByte();
      }
    } catch (IOException e) {
      throw new IllegalStateException("the table log did not confirm the rows", e);
    } finally {
      try {
        socket.close();
      } catch (IOException ignored) {
        // Nothing is lost: what was not confirmed is sent again.
      }
      socket = null;
    }
  }

  private void flushWhileOpen() {
    try {
      while (true) {
        synchronized (this) {
          while (!closed && (rows == null || rows.size() == 0)) {
            wait();
          }
          if (closed) {
            return;
          }
        }
        Thread.sleep(GATHER_MILLIS);
        synchronized (this) {
          if (closed || trouble != null) {
            return;
          }
          send();
        }
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  /** Must be called with the lock held. */
  private void send() {
    if (rows == null || rows.size() == 0 || trouble != null) {
      return;
    }
    try {
      rows.writeTo(out);
      out.flush();
    } catch (IOException e) {
      trouble = e;
    }
  }

  private synchronized void check() {
    if (trouble != null) {
      throw new IllegalStateException("the table log went away", trouble);
    }
  }
}
