package dev.topicbinding.job;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * Rows gathered column by column, in Arrow's memory layout, so that the other end needs no decoding at all.
 *
 * <p>A frame is its length (4 bytes, big-endian, without itself), then little-endian and padded to 8 bytes: the number of rows
 * (8 bytes) and, for each column, its buffers as (length in 8 bytes, bytes): validity bits, for text the 4-byte offsets, values.
 * Integers have 4 bytes, longs and doubles 8, booleans a bit.
 */
final class ColumnBuffer {
  private final Column[] columns;
  private int rows;

  ColumnBuffer(StructType schema) {
    columns = new Column[schema.length()];
    for (int i = 0; i < columns.length; i++) {
      columns[i] = new Column(schema.apply(i).dataType());
    }
  }

  int size() {
    return rows;
  }

  void add(Row row) {
    for (int i = 0; i < columns.length; i++) {
      columns[i].add(rows, row, i);
    }
    rows++;
  }

  /** Writes one frame and begins anew. */
  void writeTo(OutputStream out) throws IOException {
    long length = Long.BYTES;
    for (Column column : columns) {
      length += column.frameBytes(rows);
    }
    ByteBuffer frame = ByteBuffer.allocate(Math.toIntExact(Integer.BYTES + length));
    frame.putInt(Math.toIntExact(length));
    frame.order(ByteOrder.LITTLE_ENDIAN);
    frame.putLong(rows);
    for (Column column : columns) {
      column.putTo(frame, rows);
    }
    out.write(frame.array(), 0, frame.position());
    rows = 0;
  }

  private static final class Column {
    private static final int BITS = 0;
    private static final int TEXT = -1;

    private final DataType type;
    /** Bytes of a value; BITS for booleans, TEXT for texts. */
    private final int width;
    private byte[] valid = new byte[64];
    private byte[] values = new byte[1024];
    private ByteBuffer numbers = ByteBuffer.wrap(values).order(ByteOrder.LITTLE_ENDIAN);
    private int[] ends = new int[64];
    private int used;

    Column(DataType type) {
      this.type = type;
      if (type.equals(DataTypes.StringType)) {
        width = TEXT;
      } else if (type.equals(DataTypes.BooleanType)) {
        width = BITS;
      } else if (type.equals(DataTypes.IntegerType)) {
        width = Integer.BYTES;
      } else if (type.equals(DataTypes.LongType) || type.equals(DataTypes.DoubleType)) {
        width = Long.BYTES;
      } else {
        throw new IllegalArgumentException("a column of type " + type.simpleString() + " cannot be sent");
      }
    }

    void add(int at, Row row, int field) {
      boolean present = !row.isNullAt(field);
      if (at == 0) {
        used = 0;
      }
      valid = setBit(valid, at, present);
      if (width == TEXT) {
        if (present) {
          byte[] text = row.getString(field).getBytes(StandardCharsets.UTF_8);
          reserve(used + text.length);
          System.arraycopy(text, 0, values, used, text.length);
          used += text.length;
        }
        if (at >= ends.length) {
          ends = Arrays.copyOf(ends, 2 * ends.length);
        }
        ends[at] = used;
      } else if (width == BITS) {
        reserve(at / 8 + 1);
        values = setBit(values, at, present && row.getBoolean(field));
        used = at / 8 + 1;
      } else {
        reserve(used + width);
        if (!present) {
          Arrays.fill(values, used, used + width, (byte) 0);
        } else if (type.equals(DataTypes.IntegerType)) {
          numbers.putInt(used, row.getInt(field));
        } else if (type.equals(DataTypes.LongType)) {
          numbers.putLong(used, row.getLong(field));
        } else {
          numbers.putDouble(used, row.getDouble(field));
        }
        used += width;
      }
    }

    long frameBytes(int rows) {
      long bytes = block((rows + 7) / 8) + block(used);
      return width == TEXT ? bytes + block((rows + 1) * Integer.BYTES) : bytes;
    }

    void putTo(ByteBuffer frame, int rows) {
      put(frame, valid, (rows + 7) / 8);
      if (width == TEXT) {
        int bytes = (rows + 1) * Integer.BYTES;
        frame.putLong(bytes);
        frame.putInt(0);
        for (int i = 0; i < rows; i++) {
          frame.putInt(ends[i]);
        }
        pad(frame, bytes);
      }
      put(frame, values, used);
    }

    private static long block(int bytes) {
      return Long.BYTES + ((bytes + 7L) & ~7L);
    }

    private static void put(ByteBuffer frame, byte[] bytes, int length) {
      frame.putLong(length);
      frame.put(bytes, 0, length);
      pad(frame, length);
    }

    private static void pad(ByteBuffer frame, int written) {
      for (int i = written; (i & 7) != 0; i++) {
        frame.put((byte) 0);
      }
    }

    private static byte[] setBit(byte[] bits, int at, boolean on) {
      byte[] target = at / 8 < bits.length ? bits : Arrays.copyOf(bits, 2 * bits.length);
      int mask = 1 << (at & 7);
      target[at / 8] = (byte) (on ? target[at / 8] | mask : target[at / 8] & ~mask);
      return target;
    }

    private void reserve(int bytes) {
      if (bytes > values.length) {
        values = Arrays.copyOf(values, Math.max(bytes, 2 * values.length));
        numbers = ByteBuffer.wrap(values).order(ByteOrder.LITTLE_ENDIAN);
      }
    }
  }
}
